// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include <shardkit/backend/nccl/meeting.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::nccl SHARDKIT_FACE {

/// One process's place in a job, read from the environment that launchers such as torchrun set:
///     RANK, WORLD_SIZE         this process's number in the job, and the number of processes
///     LOCAL_RANK               its number on this machine: the GPU it uses, if it sees more than one
///     LOCAL_WORLD_SIZE         number of processes on this machine (optional; checked)
///     MASTER_ADDR, MASTER_PORT a host name or address of rank 0's machine, and a free port there
///     SHARDKIT_TOKEN           a word that only the job's processes know (optional)
///     TORCHELASTIC_RUN_ID,
///     SLURM_JOB_ID             used as the token if SHARDKIT_TOKEN is not set
/// Rank 0 gives NCCL's unique id to the others at MASTER_ADDR:MASTER_PORT. If TORCHELASTIC_USE_AGENT_STORE is True it
/// uses MASTER_PORT + 1, as torchrun's own store listens at MASTER_PORT then.
class Launcher {
  public:
    /// Reads the launcher's variables from this process's environment.
    /// @throws std::invalid_argument that names each variable that is missing, not a number or contradicts another,
    ///         with its value; gpu::Error when there is no GPU
    static Launcher from_environment(SourceLocation where = SourceLocation::current());
    /// Reads the variables from elsewhere: look_up(name) returns an std::optional<std::string>, `gpus` is the number
    /// of GPUs of this machine.
    template <class LookUp>
    static Launcher from(const LookUp& look_up, int gpus, SourceLocation where = SourceLocation::current()) {
        return {&look_up, [](const void* f, const char* name) { return (*static_cast<const LookUp*>(f))(name); },
                gpus, where};
    }

    std::size_t rank() const noexcept { return meeting_.rank; }
    std::size_t world_size() const noexcept { return meeting_.size; }
    std::size_t local_rank() const noexcept { return local_rank_; }
    int device() const noexcept { return device_; }
    /// Returns where the processes meet.
    const Meeting& meeting() const noexcept { return meeting_; }
    /// Returns the id that the job's processes connect with. Collective.
    /// @throws CommError, also when a rank does not come within the timeout
    UniqueId unique_id(std::chrono::milliseconds timeout, SourceLocation where = SourceLocation::current()) const {
        return meet(meeting_, timeout, where);
    }

  private:
    using LookUp = std::optional<std::string> (*)(const void* from, const char* name);
    Launcher(const void* from, LookUp look_up, int gpus, SourceLocation where);

    Meeting meeting_;
    std::size_t local_rank_ = 0;
    int device_ = 0;
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <functional>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl::detail {

/// Reads variables, and says what is wrong with them.
struct LauncherReader {
    std::function<std::optional<std::string>(const char* name)> look_up;
    std::string complaints;

    template <class... Pieces>
    void complain(const Pieces&... pieces) {
        shardkit::detail::append(complaints, complaints.empty() ? "" : "; ", pieces...);
    }
    std::optional<std::string> text(const char* name) {
        std::optional<std::string> value = look_up(name);
        if (value && !value->empty()) { return value; }
        complain(name, value ? " is empty" : " is not set");
        return std::nullopt;
    }
    std::optional<std::size_t> number(const char* name) {
        const std::optional<std::string> value = text(name);
        if (!value) { return std::nullopt; }
        std::size_t parsed = 0;
        const char* const end = value->data() + value->size();
        const auto [stopped, error] = std::from_chars(value->data(), end, parsed);
        if (error == std::errc{} && stopped == end) { return parsed; }
        complain(name, "=", *value, " is no whole number of at least 0");
        return std::nullopt;
    }
};

inline std::string without_brackets(const std::string& address) {
    const bool has = address.size() > 2 && address.front() == '[' && address.back() == ']';
    return has ? address.substr(1, address.size() - 2) : address;
}

}  // namespace shardkit::nccl::detail

namespace shardkit::nccl SHARDKIT_FACE {

SHARDKIT_CORE_INLINE Launcher Launcher::from_environment(SourceLocation where) {
    const auto look_up = [](const char* name) -> std::optional<std::string> {
        const char* const value = std::getenv(name);
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    };
    return from(look_up, gpu::detail::device_count(where), where);
}
SHARDKIT_CORE_INLINE Launcher::Launcher(const void* from, LookUp look_up, int gpus, SourceLocation where) {
    detail::LauncherReader read{[&](const char* name) { return look_up(from, name); }, {}};
    const std::optional<std::size_t> rank = read.number("RANK");
    const std::optional<std::size_t> size = read.number("WORLD_SIZE");
    const std::optional<std::size_t> local = read.number("LOCAL_RANK");
    if (rank && size && *rank >= *size) { read.complain("RANK=", *rank, " is not below WORLD_SIZE=", *size); }
    if (read.look_up("LOCAL_WORLD_SIZE")) {
        const std::optional<std::size_t> local_size = read.number("LOCAL_WORLD_SIZE");
        if (local && local_size && *local >= *local_size) {
            read.complain("LOCAL_RANK=", *local, " is not below LOCAL_WORLD_SIZE=", *local_size);
        }
        if (size && local_size && *local_size > *size) {
            read.complain("LOCAL_WORLD_SIZE=", *local_size, " is above WORLD_SIZE=", *size);
        }
    }
    if (local && !gpu::detail::has_device(*local, gpus)) {
        read.complain("LOCAL_RANK=", *local, " is not below the number of GPUs of this machine, which is ", gpus);
    }
    const std::optional<std::string> address = read.text("MASTER_ADDR");
    const std::optional<std::size_t> port = read.number("MASTER_PORT");
    const bool taken = read.look_up("TORCHELASTIC_USE_AGENT_STORE") == std::optional<std::string>("True");
    const std::size_t highest = taken ? 65534 : 65535;
    if (port && (*port == 0 || *port > highest)) {
        read.complain("MASTER_PORT=", *port, " is no port between 1 and ", highest);
    }
    if (!read.complaints.empty()) { throw_invalid_argument(where, "Launcher: ", read.complaints); }
    meeting_ = {detail::without_brackets(*address), static_cast<std::uint16_t>(*port + (taken ? 1U : 0U)), *rank,
                *size, ""};
    for (const char* const name : {"SHARDKIT_TOKEN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"}) {
        if (meeting_.token.empty()) { meeting_.token = read.look_up(name).value_or(""); }
    }
    local_rank_ = *local;
    device_ = gpu::detail::device_of(*local, gpus);
}

}  // namespace SHARDKIT_FACE
#endif
