// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/measure.hpp>

namespace benchmarks {

using namespace shardkit::measure;

}  // namespace benchmarks
