"""What the kernels that are built on the machine share: where a build is kept, and what a signal does to it."""
