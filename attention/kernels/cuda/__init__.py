"""The kernel `cuda`: CUDA C++ for a GPU, compiled by NVRTC at first use."""
