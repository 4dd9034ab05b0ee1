// SPDX-License-Identifier: Apache-2.0
// expected-error: Params<...>: some parameters are ep::Split and some are not; give experts a group of their own
#include <shardkit/param/params.hpp>

namespace sk = shardkit;

struct Up : sk::Param<"up", float, 4, 8>, sk::ep::Split {};
#ifdef REJECT
struct Router : sk::Param<"router", float, 4, 8> {};
#else
struct Router : sk::Param<"router", float, 4, 8>, sk::ep::Split {};
#endif
using Group = sk::Params<Up, Router>;
static_assert(Group::count == 2);
