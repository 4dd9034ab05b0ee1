// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels of kernels.hpp with their device code.

#include <shardkit/backend/cub/device_launch.cuh>
#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cub/norm_partial.cuh>
