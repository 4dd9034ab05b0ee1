// SPDX-License-Identifier: Apache-2.0
#include <shardkit/backend/cub/launches.cuh>

#include "instantiated.hpp"

template struct instantiated::Launched<instantiated::Sums>;
