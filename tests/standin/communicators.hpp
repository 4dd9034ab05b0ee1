// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "state.hpp"

namespace standin {

/// ncclSuccess when calls may be made on the communicator.
ncclResult_t check_ready(State& state, ncclComm_t comm);
/// Blocks until a communicator is there, or what is being made out of it, and hands that out.
ncclResult_t await_creation(State& state, Lock& lock, ncclComm_t comm);
/// Whether all ranks have made the windows that this one has under way.
bool have_all_windows(const ncclComm& comm);
/// Writes the windows that are under way where the user wants them: a communicator that does not block, later.
void write_windows(ncclComm& comm);
/// Ends the outermost group of the thread: queues its calls.
ncclResult_t end_group(State& state, Lock& lock, ThreadState& thread);
/// The rank takes no part any more, and the handle ends.
void leave(State& state, ncclComm_t comm);
/// The same for a communicator that may have work under way, which from now on passes without effect; then waits as
/// NCCL's commReclaim does: until streams have come to the end of that work, and no graph holds any of it. In a
/// group, from 2.22 on, only at its end, when all are told.
ncclResult_t end_communicator(State& state, Lock& lock, ThreadState& thread, ncclComm_t comm);
ncclResult_t await_end(State& state, Lock& lock, const Ending& ending);
/// ncclInvalidArgument unless the configuration was initialized as it should be.
ncclResult_t check_config(State& state, const ncclConfig_t* config);
bool is_blocking(const ncclConfig_t* config, bool otherwise);

}  // namespace standin
