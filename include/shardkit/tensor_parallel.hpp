// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Layers that are split over tp.

#include <shardkit/tensor_parallel/cross_entropy.hpp>
#include <shardkit/tensor_parallel/embedding.hpp>
#include <shardkit/tensor_parallel/tokens.hpp>

#include <shardkit/detail/show_macros.inc>
