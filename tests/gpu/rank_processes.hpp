// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/communicator.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/communicator.hpp>

#include "skip.hpp"

#ifdef SHARDKIT_TEST_ON_STANDIN
#include "unit/backend/nccl/gpu_ranks.hpp"
#endif

/// Several ranks, each a process: NCCL knows no threads that drive different ranks of one GPU. With fewer GPUs than
/// ranks they share them, which NCCL does since 2.30 where NCCL_MULTI_RANK_GPU_ENABLE=1 is set, with few channels for
/// each and without NVLS. A RANK_CASE is what one rank does; on_ranks runs it, a process for every rank. Where
/// SHARDKIT_TEST_ON_STANDIN is defined, ranks are threads of this process, as the stand-in for NCCL has them.
namespace rank_processes {

namespace sk = shardkit;

using Kernels = sk::host::AnyKernels;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

inline constexpr int sharing_version = 23000;
/// What ranks that share a GPU are given besides, unless the environment says otherwise.
inline constexpr std::array<std::array<const char*, 2>, 3> sharing_variables{
    {{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}, {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_MAX_CTAS", "4"}}};
inline constexpr const char* place_variable =
    "SHARDKIT_TEST_PLACE";                               // "rank ranks id", the id's bytes in hexadecimal
inline constexpr std::chrono::seconds rank_timeout{30};  // all load their modules while they connect
#ifdef SHARDKIT_TEST_ON_STANDIN
inline constexpr std::size_t most_ranks = 3;
inline constexpr std::chrono::milliseconds time_for_the_dead{500};
#else
inline constexpr std::size_t most_ranks = 8;
inline constexpr std::chrono::milliseconds time_for_the_dead{5000};
#endif
inline constexpr std::chrono::seconds time_for_all{240};

inline std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// Whether so many ranks share GPUs here.
inline bool shares(std::size_t ranks) { return static_cast<std::size_t>(sk::gpu::detail::device_count()) < ranks; }

/// Why `ranks` ranks cannot run here; empty when they can.
inline std::string obstacle(std::size_t ranks) {
    const auto devices = static_cast<std::size_t>(sk::gpu::detail::device_count());
    if (devices >= ranks) { return ""; }
    const int loaded = sk::nccl::library_version();
    const std::string needs = sk::detail::concat(ranks, " ranks on ", devices, " GPU(s) need ");
    if (loaded < sharing_version) {
        return sk::detail::concat(needs, "NCCL ", sk::nccl::version_text(sharing_version), ", NCCL ",
                                  sk::nccl::version_text(loaded), " is loaded");
    }
    return "";
}

inline std::string hexadecimal(const sk::nccl::UniqueId& id) {
    std::string text;
    for (const std::byte byte : id.bytes) {
        constexpr std::string_view digits = "0123456789abcdef";
        text += digits[std::to_integer<std::size_t>(byte) / 16];
        text += digits[std::to_integer<std::size_t>(byte) % 16];
    }
    return text;
}

/// This process's place among the ranks.
struct Place {
    std::size_t rank = 0;
    std::size_t ranks = 0;
    sk::nccl::UniqueId id;

    sk::nccl::Options options() const {
        sk::nccl::Options options;
        options.device = static_cast<int>(rank) % sk::gpu::detail::device_count();
        options.timeout = rank_timeout;
        options.arena_chunk_bytes = std::size_t{8} << 20U;
        options.staging_bytes = std::size_t{1} << 20U;
        return options;
    }
};

/// From here on a rank waits no longer for one that may be gone.
inline sk::Deadline short_deadline(sk::nccl::World& world) {
    return sk::Deadline(sk::Communicator(world), time_for_the_dead.count(), sk::SourceLocation::current());
}

using RankCase = void (*)(const Place& place);

/// Whether the last rank's process ends as the others' do, or is killed, stopped or stuck.
enum class LastRank { ends, is_lost };

#ifdef SHARDKIT_TEST_ON_STANDIN

struct ListedCase {
    RankCase runs;
    bool ran = false;
};
inline std::map<std::string_view, ListedCase>& rank_cases() {
    static std::map<std::string_view, ListedCase> cases;
    return cases;
}
#define RANK_CASE_NAMED(name, function)                                                           \
    static void function(const rank_processes::Place& place);                                     \
    static const bool DOCTEST_ANONYMOUS(listed_) =                                                \
        rank_processes::rank_cases().emplace(name, rank_processes::ListedCase{&function}).second; \
    static void function([[maybe_unused]] const rank_processes::Place& place)

/// Threads in the place of processes, which have ended.
class Processes {
  public:
    Processes(std::size_t ranks, std::string_view rank_case) {
        const sk::nccl::UniqueId id = sk::nccl::UniqueId::create();
        ListedCase& listed = rank_cases().at(rank_case);
        listed.ran = true;
        error_ = gpu_ranks::first_error(gpu_ranks::each_in_a_thread(ranks, [&](std::size_t rank) {
            listed.runs({rank, ranks, id});
        }));
    }
    std::size_t failures(LastRank /*last*/) const {
        INFO(error_);
        CHECK(error_.empty());
        return 0;
    }

  private:
    std::string error_;
};

#else

/// Of this process.
inline Place read_place() {
    const std::string text = variable(place_variable);
    const auto first = text.find(' ');
    const auto second = text.find(' ', first + 1);
    REQUIRE(second != std::string::npos);
    const std::string digits = text.substr(second + 1);
    sk::nccl::UniqueId id;
    REQUIRE(digits.size() == 2 * id.bytes.size());
    for (std::size_t i = 0; i < id.bytes.size(); ++i) {
        unsigned value = 0;
        std::from_chars(digits.data() + 2 * i, digits.data() + 2 * i + 2, value, 16);
        id.bytes[i] = static_cast<std::byte>(value);
    }
    return {std::stoul(text.substr(0, first)), std::stoul(text.substr(first + 1, second - first - 1)), id};
}

#define RANK_CASE_NAMED(name, function)                                                     \
    static void function(const rank_processes::Place& place);                               \
    TEST_CASE("a rank: " name* doctest::skip()) { function(rank_processes::read_place()); } \
    static void function([[maybe_unused]] const rank_processes::Place& place)

/// The processes of the ranks that still run; those that are left when this ends are killed.
class Processes {
  public:
    Processes(std::size_t ranks, std::string_view rank_case) {
        const std::string id = hexadecimal(sk::nccl::UniqueId::create());
        std::string program = "/proc/self/exe";
        std::string no_skip = "--no-skip";
        std::string filter = sk::detail::concat("--test-case=a rank: ", rank_case);
        std::array<char*, 4> arguments{program.data(), no_skip.data(), filter.data(), nullptr};
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            std::string place = sk::detail::concat(place_variable, "=", rank, " ", ranks, " ", id);
            std::vector<char*> environment;
            for (char** each = environ; *each != nullptr; ++each) { environment.push_back(*each); }
            environment.push_back(place.data());
            std::array<std::string, sharing_variables.size()> sharing;
            for (std::size_t i = 0; i < sharing.size(); ++i) {
                const auto [name, value] = sharing_variables[i];
                sharing[i] = sk::detail::concat(name, "=", value);
                if (shares(ranks) && variable(name).empty()) { environment.push_back(sharing[i].data()); }
            }
            environment.push_back(nullptr);
            pid_t process = 0;
            REQUIRE(posix_spawn(&process, program.c_str(), nullptr, nullptr, arguments.data(), environment.data()) ==
                    0);
            running_.push_back(process);
        }
    }
    Processes(const Processes&) = delete;
    Processes& operator=(const Processes&) = delete;
    ~Processes() {
        running_.insert(running_.end(), lost_.begin(), lost_.end());
        for (const pid_t process : running_) {
            kill(process, SIGKILL);
            waitpid(process, nullptr, 0);
        }
    }

    /// Waits for all of them, but for the last rank's where that is to be lost. How many failed, those counted that
    /// do not end in time.
    std::size_t failures(LastRank last) {
        if (last == LastRank::is_lost) {
            lost_.push_back(running_.back());
            running_.pop_back();
        }
        const auto deadline = std::chrono::steady_clock::now() + time_for_all;
        std::size_t failed = 0;
        while (!running_.empty() && std::chrono::steady_clock::now() < deadline) {
            std::erase_if(running_, [&](pid_t process) {
                int status = 0;
                if (waitpid(process, &status, WNOHANG) == 0) { return false; }
                failed += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0U : 1U;
                return true;
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return failed + running_.size();
    }

  private:
    std::vector<pid_t> running_;
    std::vector<pid_t> lost_;
};

#endif

/// RANK_CASE("name") { what a rank does, at its `place` }
#define RANK_CASE(name)                                                       \
    static_assert(std::string_view(name).find(',') == std::string_view::npos, \
                  "doctest cuts a filter at its commas");                     \
    RANK_CASE_NAMED(name, DOCTEST_ANONYMOUS(rank_case_))

inline void on_ranks(std::string_view rank_case, std::initializer_list<std::size_t> sizes = {2U, 3U, 4U, 8U},
                     LastRank last = LastRank::ends) {
    if (const std::string reason = obstacle(*sizes.begin()); !reason.empty()) {
        skip(reason);
        return;
    }
    for (const std::size_t ranks : sizes) {
        if (ranks > (shares(ranks) ? 4 : most_ranks)) { continue; }
        if (const std::string reason = obstacle(ranks); !reason.empty()) {
            std::printf("left out: %s\n", reason.c_str());
            std::fflush(stdout);
            continue;
        }
        CAPTURE(ranks);
        CHECK(Processes(ranks, rank_case).failures(last) == 0);
    }
}

}  // namespace rank_processes
