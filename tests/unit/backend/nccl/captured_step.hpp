// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cuda/step_graph.hpp>
#include <shardkit/backend/cuda/timeline.hpp>

namespace step_trainer {

using CapturedStep = shardkit::gpu::StepGraph<shardkit::gpu::TimelineRef>;

}  // namespace step_trainer
