// SPDX-License-Identifier: Apache-2.0
// expected-error: Param: every extent must be at least 1
#include "model.hpp"

#ifdef REJECT
struct Empty : sk::Param<"empty", float, 4, 0> {};
#else
struct Empty : sk::Param<"empty", float, 4, 1> {};
#endif
std::size_t count() { return sk::Params<Empty>::count; }
