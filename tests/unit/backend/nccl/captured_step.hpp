// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/cuda/step_graph.hpp>

namespace step_trainer {

using CapturedStep = shardkit::gpu::StepGraph;

}  // namespace step_trainer
