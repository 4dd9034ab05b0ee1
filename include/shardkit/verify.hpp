// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Whether replicas have equal bits, hashes of what a model holds, and norms of each parameter's gradient.

#include <shardkit/verify/verify.hpp>

#include <shardkit/detail/show_macros.inc>
