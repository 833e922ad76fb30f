// The example of docs/integrating.md for LibTorch, written by tests/pages/extract.cmake while configuring.
#include <integrating_libtorch.hpp>
