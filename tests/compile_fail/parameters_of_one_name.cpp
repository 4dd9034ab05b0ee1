// SPDX-License-Identifier: Apache-2.0
// expected-error: Params<...>: two parameters of the group have the same name
#include "model.hpp"

struct SameName : sk::Param<"weight", float, 2> {};

#ifdef REJECT
using Group = sk::Params<Weight, SameName>;
#else
using Group = sk::Params<Weight, Bias>;
#endif
std::size_t count() { return Group::count; }
