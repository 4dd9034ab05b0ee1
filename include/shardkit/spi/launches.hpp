// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a part gives a stream: functors that are called with an index, once or for each, and tables that they read.

#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/index_kernels.hpp>
#include <shardkit/rank/launches.hpp>
