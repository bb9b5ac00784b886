"""The kernel `compiled`: C++ for a CPU, built by the machine's own compiler at first use."""
