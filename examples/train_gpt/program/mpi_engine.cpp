// SPDX-License-Identifier: Apache-2.0
#include "mpi_engine.hpp"

#include <shardkit/backend/mpi/engine.hpp>

namespace train_gpt {

shardkit::engine::Traits mpi_traits() { return shardkit::mpi::Engine<>::traits; }

}  // namespace train_gpt
