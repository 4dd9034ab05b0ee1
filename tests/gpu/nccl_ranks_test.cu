// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shardkit/backend/cub/kernels.hpp>
#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/version.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/shardkit.hpp>

#include "../unit/backend/nccl/captured_step.hpp"
#include "../unit/backend/nccl/step_trainer.hpp"
#include "../unit/backend/rank_checks.hpp"
#include "closed_forms.hpp"
#include "skip.hpp"

// Several ranks, each a process: NCCL knows no threads that drive different ranks of one GPU. With fewer GPUs than
// ranks they share them, which NCCL does since 2.30 where NCCL_MULTI_RANK_GPU_ENABLE=1 is set. The test cases that
// are skipped by default are what one rank does; the others run them, a process for every rank.

namespace sk = shardkit;
using step_trainer::Outcome;
using step_trainer::Settings;

namespace {

using Kernels = sk::gpu::Kernels;
using Engine = sk::nccl::Engine<Kernels>;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

constexpr int sharing_version = 23000;
constexpr const char* sharing_variable = "NCCL_MULTI_RANK_GPU_ENABLE";
constexpr const char* place_variable = "SHARDKIT_TEST_PLACE";  // "rank ranks id", the id's bytes in hexadecimal
constexpr std::chrono::seconds rank_timeout{30};
constexpr std::chrono::seconds time_for_all{240};

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// Why `ranks` ranks cannot run here; empty when they can.
std::string obstacle(std::size_t ranks) {
    const auto devices = static_cast<std::size_t>(sk::gpu::device_count());
    if (devices >= ranks) { return ""; }
    const int loaded = sk::nccl::library_version();
    const std::string needs = sk::detail::concat(ranks, " ranks on ", devices, " GPU(s) need ");
    if (loaded < sharing_version) {
        return sk::detail::concat(needs, "NCCL ", sk::nccl::version_text(sharing_version), ", NCCL ",
                                  sk::nccl::version_text(loaded), " is loaded");
    }
    if (variable(sharing_variable) != "1") {
        return sk::detail::concat(needs, sharing_variable, "=1 (NCCL ", sk::nccl::version_text(loaded),
                                  " is loaded, ", sk::nccl::version_text(sharing_version), " has it)");
    }
    return "";
}

std::string hexadecimal(const sk::nccl::UniqueId& id) {
    std::string text;
    for (const std::byte byte : id.bytes()) {
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

    static Place read() {
        const std::string text = variable(place_variable);
        const auto first = text.find(' ');
        const auto second = text.find(' ', first + 1);
        REQUIRE(second != std::string::npos);
        const std::string digits = text.substr(second + 1);
        REQUIRE(digits.size() == 2 * sk::nccl::UniqueId::size);
        std::array<std::byte, sk::nccl::UniqueId::size> bytes{};
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            unsigned value = 0;
            std::from_chars(digits.data() + 2 * i, digits.data() + 2 * i + 2, value, 16);
            bytes[i] = static_cast<std::byte>(value);
        }
        return {std::stoul(text.substr(0, first)), std::stoul(text.substr(first + 1, second - first - 1)),
                sk::nccl::UniqueId::from_bytes(bytes)};
    }
    sk::nccl::Options options() const {
        sk::nccl::Options options;
        options.device = static_cast<int>(rank) % sk::gpu::device_count();
        options.timeout = rank_timeout;
        options.arena_chunk_bytes = std::size_t{8} << 20U;
        options.staging_bytes = std::size_t{1} << 20U;
        return options;
    }
};

/// The processes of the ranks that still run; those that are left when this ends are killed.
class Processes {
  public:
    Processes(std::size_t ranks, std::string_view test_case) {
        const std::string id = hexadecimal(sk::nccl::UniqueId::create());
        std::string program = "/proc/self/exe";
        std::string no_skip = "--no-skip";
        std::string filter = sk::detail::concat("--test-case=", test_case);
        std::array<char*, 4> arguments{program.data(), no_skip.data(), filter.data(), nullptr};
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            std::string place = sk::detail::concat(place_variable, "=", rank, " ", ranks, " ", id);
            std::vector<char*> environment;
            for (char** each = environ; *each != nullptr; ++each) { environment.push_back(*each); }
            environment.push_back(place.data());
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
        for (const pid_t process : running_) {
            kill(process, SIGKILL);
            waitpid(process, nullptr, 0);
        }
    }

    /// Waits for all of them. How many failed, those counted that do not end in time.
    std::size_t failures() {
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
};

void on_ranks(std::string_view test_case) {
    if (const std::string reason = obstacle(2); !reason.empty()) {
        skip(reason);
        return;
    }
    for (const std::size_t ranks : {2U, 3U, 4U}) {
        if (const std::string reason = obstacle(ranks); !reason.empty()) {
            std::printf("left out: %s\n", reason.c_str());
            std::fflush(stdout);
            continue;
        }
        CAPTURE(ranks);
        CHECK(Processes(ranks, test_case).failures() == 0);
    }
}

template <class T, class Policy>
Outcome on_threads(const Place& place, const Settings& settings, std::string_view plan) {
    std::vector<Outcome> outcomes(place.ranks);
    sk::threads::run(Mesh(place.ranks, 1, 1), [&](auto& rank) {
        outcomes[rank.rank()] =
            step_trainer::follow<T>(rank, sk::DynamicPolicy(Policy{}), settings, plan, step_trainer::Repeat{});
    });
    return outcomes[place.rank];
}

void check_close(const std::vector<double>& given, const std::vector<double>& expected, double bound) {
    REQUIRE(given.size() == expected.size());
    std::size_t outside = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const double scale = std::max(std::abs(expected[i]), 0.1);
        outside += std::abs(given[i] - expected[i]) <= bound * scale ? 0U : 1U;
    }
    CHECK(outside == 0);
}

template <class T, class Policy>
void check_training(const Place& place, sk::nccl::World& world, double bound) {
    CAPTURE(Policy::name);
    const Settings settings{.microbatches = 2, .learning_rate = 0.01};
    const std::string_view plan = "eCeLLeL";
    const auto run = [&](const auto& capture) {
        sk::Rank<Engine, Mesh> rank(Mesh(place.ranks, 1, 1), Engine::Communicator(world), {}, world.streams());
        return step_trainer::follow<T>(rank, sk::DynamicPolicy(Policy{}), settings, plan, capture);
    };
    const Outcome expected = on_threads<T, Policy>(place, settings, plan);
    const Outcome plain = run(step_trainer::Repeat{});
    check_close(plain.parameters, expected.parameters, bound);
    check_close(plain.log, expected.log, bound);
    const Outcome with_graphs =
        run([&](const auto& step) { return step_trainer::CapturedStep(world.streams(), step); });
    check_close(with_graphs.parameters, expected.parameters, bound);
    check_close(with_graphs.log, expected.log, bound);
}

template <class T>
void check_policies(const Place& place, sk::nccl::World& world, double bound) {
    check_training<T, sk::NoShard>(place, world, bound);
    check_training<T, sk::ShardOptimizer>(place, world, bound);
    check_training<T, sk::ShardGradOp>(place, world, bound);
    check_training<T, sk::FullShard>(place, world, bound);
    if (place.ranks % 2 == 0) { check_training<T, sk::HybridShard<2>>(place, world, bound); }
}

}  // namespace

TEST_CASE("a rank: verbs" * doctest::skip()) {
    const Place place = Place::read();
    sk::nccl::World world(place.id, place.ranks, place.rank, place.options());
    const Engine::Communicator comm(world);
    closed_forms::check_verbs<double, Kernels>(comm);
    closed_forms::check_verbs<float, Kernels>(comm);
    closed_forms::check_verbs<sk::bf16, Kernels>(comm);
    closed_forms::check_verbs<std::uint64_t, Kernels>(comm);
    world.finish();
}

TEST_CASE("a rank: training" * doctest::skip()) {
    const Place place = Place::read();
    sk::nccl::World world(place.id, place.ranks, place.rank, place.options());
    check_policies<double>(place, world, 1e-12);
    check_policies<float>(place, world, 1e-5);
    world.finish();
}

TEST_CASE("a rank: failure" * doctest::skip()) {
    const Place place = Place::read();
    const bool fails = place.rank + 1 == place.ranks;
    sk::nccl::World world(place.id, place.ranks, place.rank, place.options());
    const auto run = [&] {
        sk::nccl::run<Engine>(Mesh(place.ranks, 1, 1), world, [&](auto& rank) {
            step_trainer::Trainer<float, std::remove_reference_t<decltype(rank)>> trainer(
                rank, sk::DynamicPolicy(sk::FullShard{}), Settings{.microbatches = 2});
            trainer.step();
            if (fails) { throw rank_checks::Planted("planted"); }
            trainer.step();
            static_cast<void>(trainer.outcome());
        });
    };
    const auto took = rank_checks::duration_of([&] {
        if (fails) {
            CHECK_THROWS_AS(run(), rank_checks::Planted);
        } else {
            CHECK_THROWS_AS(run(), sk::CommError);
        }
    });
    CHECK(took < rank_timeout + std::chrono::seconds(15));
}

TEST_CASE("every verb gives its closed form on several ranks") { on_ranks("a rank: verbs"); }

TEST_CASE("training on several ranks, plain and in graphs, is training on the host's threads") {
    on_ranks("a rank: training");
}

TEST_CASE("a rank that throws ends the others with an error, in time") { on_ranks("a rank: failure"); }
