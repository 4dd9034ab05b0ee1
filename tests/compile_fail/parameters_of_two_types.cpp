// SPDX-License-Identifier: Apache-2.0
// expected-error: Params<...>: all parameters of a group have the same element type
#include "model.hpp"

struct Double : sk::Param<"double", double, 2> {};

#ifdef REJECT
using Group = sk::Params<Weight, Double>;
#else
using Group = sk::Params<Weight, Bias>;
#endif
std::size_t count() { return Group::count; }
