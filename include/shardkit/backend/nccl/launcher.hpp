// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/nccl/comm_id_scope.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl {

/// One process's place in a job, as launchers such as torchrun tell it in the environment:
///     RANK, WORLD_SIZE         this process's number among all, and how many these are
///     LOCAL_RANK               its number on this machine: the GPU it uses
///     LOCAL_WORLD_SIZE         processes on this machine (optional; checked)
///     MASTER_ADDR, MASTER_PORT a host name or address of rank 0's machine, and a free port there
/// NCCL connects the processes itself: they meet at MASTER_ADDR:MASTER_PORT, or at MASTER_PORT + 1 where
/// TORCHELASTIC_USE_AGENT_STORE is True, because torchrun's own store listens at MASTER_PORT then. Where NCCL_COMM_ID
/// is set it names the meeting point and MASTER_ADDR and MASTER_PORT are not looked at. Every machine needs a network
/// interface in the subnet of the meeting point; otherwise share a UniqueId over MPI by share_unique_id.
class Launcher {
  public:
    /// @throws std::invalid_argument that names each variable that is missing, is no number or contradicts another,
    /// with its value; gpu::Error when there is no GPU
    static Launcher from_environment(SourceLocation where = SourceLocation::current()) {
        const auto look_up = [](const char* name) -> std::optional<std::string> {
            const char* const value = std::getenv(name);
            return value == nullptr ? std::nullopt : std::optional<std::string>(value);
        };
        return from(look_up, gpu::device_count(where), where);
    }
    /// The same for variables from elsewhere: look_up(name) is an std::optional<std::string>, `gpus` the number of
    /// GPUs of this machine.
    template <class LookUp>
    static Launcher from(const LookUp& look_up, int gpus, SourceLocation where = SourceLocation::current()) {
        Reader<LookUp> read{look_up, {}};
        Launcher result;
        const std::optional<std::size_t> rank = read.number("RANK");
        const std::optional<std::size_t> size = read.number("WORLD_SIZE");
        const std::optional<std::size_t> local = read.number("LOCAL_RANK");
        const std::optional<std::size_t> local_size =
            look_up("LOCAL_WORLD_SIZE") ? read.number("LOCAL_WORLD_SIZE") : std::nullopt;
        if (rank && size && *rank >= *size) { read.complain("RANK=", *rank, " is not below WORLD_SIZE=", *size); }
        if (local && local_size && *local >= *local_size) {
            read.complain("LOCAL_RANK=", *local, " is not below LOCAL_WORLD_SIZE=", *local_size);
        }
        if (size && local_size && *local_size > *size) {
            read.complain("LOCAL_WORLD_SIZE=", *local_size, " is above WORLD_SIZE=", *size);
        }
        if (local && *local >= static_cast<std::size_t>(gpus)) {
            read.complain("LOCAL_RANK=", *local, " is not below the number of GPUs of this machine, which is ", gpus);
        }
        if (const auto comm_id = look_up(detail::CommIdScope::name); comm_id && !comm_id->empty()) {
            result.endpoint_ = *comm_id;
        } else {
            const std::optional<std::string> address = read.text("MASTER_ADDR");
            const std::optional<std::size_t> port = read.number("MASTER_PORT");
            const bool taken = look_up("TORCHELASTIC_USE_AGENT_STORE") == std::optional<std::string>("True");
            const std::size_t highest = taken ? 65534 : 65535;
            if (port && (*port == 0 || *port > highest)) {
                read.complain("MASTER_PORT=", *port, " is no port between 1 and ", highest);
            } else if (address && port) {
                const bool ipv6 = address->find(':') != std::string::npos && address->front() != '[';
                result.endpoint_ =
                    shardkit::detail::concat(ipv6 ? "[" : "", *address, ipv6 ? "]:" : ":", *port + (taken ? 1U : 0U));
            }
        }
        if (!read.complaints.empty()) { throw_invalid_argument(where, "Launcher: ", read.complaints); }
        result.rank_ = *rank;
        result.world_size_ = *size;
        result.local_rank_ = *local;
        return result;
    }

    std::size_t rank() const noexcept { return rank_; }
    std::size_t world_size() const noexcept { return world_size_; }
    std::size_t local_rank() const noexcept { return local_rank_; }
    int device() const noexcept { return static_cast<int>(local_rank_); }
    /// "address:port" at which the processes meet.
    const std::string& endpoint() const noexcept { return endpoint_; }

  private:
    template <class LookUp>
    struct Reader {
        const LookUp& look_up;
        std::string complaints;

        template <class... Pieces>
        void complain(const Pieces&... pieces) {
            complaints += shardkit::detail::concat(complaints.empty() ? "" : "; ", pieces...);
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

    Launcher() = default;

    std::size_t rank_ = 0;
    std::size_t world_size_ = 1;
    std::size_t local_rank_ = 0;
    std::string endpoint_;
};

}  // namespace shardkit::nccl
