// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Optimizers of whole matrices, and several optimizers over one model.

#ifdef SHARDKIT_COMPILED
#include <shardkit/compiled/muon.hpp>
#else
#include <shardkit/muon/matrix_plan.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
