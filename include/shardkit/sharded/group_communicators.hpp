// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit {

/// The sub-meshes that a group of parameters lives on, as seen from one rank.
template <class Engine>
struct GroupCommunicators {
    typename Engine::Communicator shards;    ///< over the policy's shard axes
    typename Engine::Communicator replicas;  ///< over the remaining data axes
    typename Engine::Communicator data;      ///< over all data axes
    typename Engine::Communicator tp;
};

}  // namespace shardkit
