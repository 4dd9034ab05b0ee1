// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include <nccl.h>

#include <shardkit/backend/nccl/launcher.hpp>

#include "gpu.hpp"

namespace cuda_trainer {

/// This process among those of its job, as a launcher tells it in the environment; nothing where it is alone.
inline std::optional<shardkit::nccl::Launcher> launcher() {
    const bool alone = std::getenv("RANK") == nullptr && std::getenv("WORLD_SIZE") == nullptr;
    return alone ? std::nullopt : std::optional(shardkit::nccl::Launcher::from_environment());
}

/// The processes of a job, connected; on the selected GPU.
struct Job {
    std::size_t rank;
    std::size_t ranks;
    ncclComm_t comm = nullptr;

    Job(ncclUniqueId id, std::size_t number, std::size_t count) : rank(number), ranks(count) {
        check(ncclCommInitRank(&comm, static_cast<int>(ranks), id, static_cast<int>(rank)), "ncclCommInitRank");
    }
    explicit Job(const std::optional<shardkit::nccl::Launcher>& launched)
        : Job(meet(launched), launched ? launched->rank() : 0, launched ? launched->world_size() : 1) {}
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    ~Job() {
        if (comm != nullptr) { static_cast<void>(ncclCommDestroy(comm)); }
    }
    /// Ends what is under way, without the peers.
    void abort() {
        if (comm != nullptr) { static_cast<void>(ncclCommAbort(std::exchange(comm, nullptr))); }
    }

  private:
    /// Rank 0 makes an id, and sends it to the others.
    static ncclUniqueId meet(const std::optional<shardkit::nccl::Launcher>& launched) {
        const auto shared =
            launched ? launched->unique_id(std::chrono::minutes(10)) : shardkit::nccl::UniqueId::create();
        ncclUniqueId id;
        std::memcpy(&id, shared.bytes().data(), sizeof id);
        return id;
    }
};

}  // namespace cuda_trainer
