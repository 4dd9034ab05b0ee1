// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <nccl.h>

#include <shardkit/backend/nccl/rendezvous.hpp>

#include "gpu.hpp"
#include "options.hpp"

namespace cuda_trainer {

/// This process among those of its job, as a launcher tells it in the environment.
struct Place {
    std::size_t rank = 0;
    std::size_t ranks = 1;
    std::size_t local_rank = 0;
    std::string address;  ///< of rank 0's machine, where the ranks meet; empty for one rank
    std::uint16_t port = 0;

    /// One rank where neither RANK nor WORLD_SIZE is set. look_up(name) is an std::optional<std::string>.
    /// @throws InputError that names the variable
    template <class LookUp>
    static Place from(const LookUp& look_up) {
        const auto text = [&](const char* name) {
            const std::optional<std::string> value = look_up(name);
            if (!value || value->empty()) {
                throw InputError(std::string(name) + " is not set: expected RANK, WORLD_SIZE, LOCAL_RANK, " +
                                 "MASTER_ADDR and MASTER_PORT, or none of them");
            }
            return *value;
        };
        const auto number = [&](const char* name) {
            const std::string value = text(name);
            std::size_t parsed = 0;
            const char* const end = value.data() + value.size();
            const auto [stopped, error] = std::from_chars(value.data(), end, parsed);
            if (error != std::errc{} || stopped != end) {
                throw InputError(std::string(name) + "=" + value + ": expected a whole number");
            }
            return parsed;
        };
        if (!look_up("RANK") && !look_up("WORLD_SIZE")) { return {}; }
        Place place{number("RANK"), number("WORLD_SIZE"), number("LOCAL_RANK"), {}, 0};
        if (place.rank >= place.ranks) {
            throw InputError("RANK=" + std::to_string(place.rank) +
                             " is not below WORLD_SIZE=" + std::to_string(place.ranks));
        }
        // torchrun's own store listens at MASTER_PORT.
        const bool taken = look_up("TORCHELASTIC_USE_AGENT_STORE") == std::optional<std::string>("True");
        const std::size_t port = number("MASTER_PORT") + (taken ? 1 : 0);
        if (port == 0 || port > 65535) {
            throw InputError("MASTER_PORT=" + text("MASTER_PORT") + ": expected a port between 1 and 65535");
        }
        place.address = text("MASTER_ADDR");
        place.port = static_cast<std::uint16_t>(port);
        return place;
    }
    static Place from_environment() {
        return from([](const char* name) -> std::optional<std::string> {
            const char* const value = std::getenv(name);
            return value == nullptr ? std::nullopt : std::optional<std::string>(value);
        });
    }
};

/// The GPU of this process.
/// @throws InputError when there are too few
inline int device_of(const Place& place) {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess || count == 0) {
        throw InputError(std::string("no GPU: ") +
                         cudaGetErrorString(code == cudaSuccess ? cudaErrorNoDevice : code));
    }
    if (place.local_rank >= static_cast<std::size_t>(count)) {
        throw InputError("LOCAL_RANK=" + std::to_string(place.local_rank) + " is not below the number of GPUs, " +
                         std::to_string(count));
    }
    return static_cast<int>(place.local_rank);
}

/// The processes of a job, connected; on the selected GPU.
struct Job {
    std::size_t rank;
    std::size_t ranks;
    ncclComm_t comm = nullptr;

    Job(ncclUniqueId id, std::size_t number, std::size_t count) : rank(number), ranks(count) {
        check(ncclCommInitRank(&comm, static_cast<int>(ranks), id, static_cast<int>(rank)), "ncclCommInitRank");
    }
    explicit Job(const Place& place) : Job(meet(place), place.rank, place.ranks) {}
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
    static ncclUniqueId meet(const Place& place) {
        const auto shared =
            shardkit::nccl::meet({place.address, place.port, place.rank, place.ranks, {}}, std::chrono::minutes(10));
        ncclUniqueId id;
        std::memcpy(&id, shared.bytes().data(), sizeof id);
        return id;
    }
};

}  // namespace cuda_trainer
