"""The compiler of Saccade's CPU kernels: libsaccade_clang.so with LLVM and Clang 19 inside. The package saccade finds it here."""
