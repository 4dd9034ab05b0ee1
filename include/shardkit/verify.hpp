// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Whether replicas have equal bits, hashes of what a model holds, and norms of each parameter's gradient.

#ifdef SHARDKIT_COMPILED
#include <shardkit/compiled/verify.hpp>
#else
#include <shardkit/optim/gradient_norms.hpp>
#include <shardkit/optim/hash_values.hpp>
#include <shardkit/optim/verify_replicas.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
