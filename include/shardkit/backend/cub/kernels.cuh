// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels of kernels.hpp with their device code.
// A .cu file must not say `using namespace shardkit` outside of a namespace of its own: the code that nvcc generates
// names cub:: and cuda:: without leading colons, which would then be ambiguous.

#include <shardkit/backend/cub/device_launch.cuh>
#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cub/norm_partial.cuh>
