// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Muon, and several optimizers over one model.

#include <shardkit/muon/host_products.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#ifndef SHARDKIT_COMPILED
#include <shardkit/muon/matrix_optimizer.hpp>
#include <shardkit/muon/matrix_plan.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
