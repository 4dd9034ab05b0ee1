// SPDX-License-Identifier: Apache-2.0
// expected-error: Params<...>: an alias and the parameter it names disagree on TensorParallel, Frozen or NoDecay
#include <shardkit/param/params.hpp>

namespace sk = shardkit;

struct Scale : sk::Param<"scale", float, 4>, sk::NoDecay {};
#ifdef REJECT
struct Gain : sk::Alias<"gain", Scale>, sk::Frozen {};
#else
struct Gain : sk::Alias<"gain", Scale>, sk::NoDecay {};
#endif
using Group = sk::Params<Scale, Gain>;
static_assert(Group::count == 1);
