// SPDX-License-Identifier: Apache-2.0
#include <shardkit/shardkit.hpp>

#include "use.hpp"

int count_in_another_unit() { return static_cast<int>(shardkit::DeviceMesh<2, 1, 1>{}.size()); }
