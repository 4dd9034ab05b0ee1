// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/param/param.hpp>

namespace benchmarks::policies {

/// All elements of a group.
template <class T>
struct Elements : shardkit::Param<"elements", T, shardkit::dynamic> {};

}  // namespace benchmarks::policies
