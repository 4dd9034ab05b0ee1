// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// The kernels of kernels.hpp with their device code.

#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cub/launch.cuh>
#include <shardkit/backend/cub/norm.cuh>

#include <shardkit/detail/show_macros.inc>
