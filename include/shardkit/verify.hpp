// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Whether replicas have equal bits, hashes of what a model holds, and norms of each parameter's gradient.

#ifdef SHARDKIT_COMPILED
#include <shardkit/compiled/verify.hpp>
#else
#include <shardkit/verify/gradient_norms.hpp>
#include <shardkit/verify/hash_values.hpp>
#include <shardkit/verify/verify_replicas.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
