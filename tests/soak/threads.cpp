// SPDX-License-Identifier: Apache-2.0
// soak_threads [--seeds N] [--from S] | --seed S | --times: faults that seeds choose, on ranks that are threads, over
// a small trainer under all policies. A run must end with the bits of the faultless one, or with an error on all
// ranks that names what was planted; data that a call has spoilt must be found where that is promised. Prints the
// counts, and for each run that goes wrong its seed, with which --seed does it again. --times prints how long each
// kind takes from the fault to the last rank's error.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "soaked_trainer.hpp"

namespace {

namespace sk = shardkit;
using namespace soak;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// What a run came to.
struct Result {
    std::vector<Numbers> numbers;     // by rank
    std::vector<std::string> errors;  // by rank; empty: it returned
    std::vector<Clock::time_point> ended;
};

Result run(const Trial& trial, planted::Faults& faults, std::chrono::milliseconds timeout) {
    Result result{std::vector<Numbers>(trial.ranks), std::vector<std::string>(trial.ranks),
                  std::vector<Clock::time_point>(trial.ranks)};
    sk::threads::LaunchOptions options;
    options.overlap = trial.overlap ? sk::threads::Overlap::threads : sk::threads::Overlap::none;
    options.timeout = options.finish_timeout = timeout;
    const auto body = [&](const sk::Communicator& world) {
        const std::size_t at = world.rank();
        struct End {
            Clock::time_point& when;
            ~End() { when = Clock::now(); }
        } const end{result.ended[at]};
        sk::MeshRank<sk::DeviceMesh<sk::dynamic>> rank{
            sk::DeviceMesh{trial.ranks}, world, {}, {{}, world.communication_stream(), world.reduction_stream()}};
        planted::with_faults(rank, faults, [&](auto& faulty) { train(faulty, trial.policy, result.numbers[at]); });
    };
    const auto errors = sk::threads::launch_and_collect(trial.ranks, body, options);
    for (std::size_t rank = 0; rank < trial.ranks; ++rank) {
        if (errors[rank] == nullptr) { continue; }
        try {
            std::rethrow_exception(errors[rank]);
        } catch (const std::exception& error) { result.errors[rank] = error.what(); } catch (...) {
            result.errors[rank] = "no std::exception";
        }
    }
    return result;
}

/// A run without faults of a trial, once for each.
struct Faultless {
    Result result;
    planted::Faults::Count most;
};
const Faultless& faultless(const Trial& trial) {
    static std::map<std::pair<std::string_view, std::size_t>, Faultless> known;
    const auto [found, is_new] = known.try_emplace({trial.policy, trial.ranks});
    if (is_new) {
        planted::Faults none;
        found->second.result = run(trial, none, 60s);
        found->second.most = none.most();
        for (const std::string& error : found->second.result.errors) {
            if (!error.empty()) { throw std::runtime_error("a run without faults: " + error); }
        }
    }
    return found->second;
}

planted::FaultPlan plan_of(std::uint64_t seed, const Trial& trial) {
    const auto most = faultless(trial).most;
    // Behind a rank's last call the others need it no more.
    planted::FaultChoice choice{.ranks = trial.ranks, .calls = most.calls - 1, .buffers = most.buffers};
    choice.longest_delay = 3;
    if (seed % 100 == 99) { choice.kinds = {FaultKind::hang}; }  // which take the deadline's time
    if (seed % 8 == 5) { choice.faults = 2; }
    return planted::plan_of(seed, choice);
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// What is wrong with a result; empty if nothing is. `kind` is what became of it.
std::string wrong(const Trial& trial, const planted::Faults& faults, const Result& result, std::string& kind) {
    const auto struck = faults.struck();
    const Numbers* const expected = faultless(trial).result.numbers.data();
    const std::size_t failed = static_cast<std::size_t>(
        std::count_if(result.errors.begin(), result.errors.end(), [](const auto& error) { return !error.empty(); }));
    const bool same = std::equal(result.numbers.begin(), result.numbers.end(), expected);
    const auto spoilt = std::find_if(struck.begin(), struck.end(),
                                     [](const auto& one) { return one.fault.kind == FaultKind::wrong_data; });
    const auto ends = [](const auto& one) {
        return one.fault.kind != FaultKind::wrong_data && one.fault.kind != FaultKind::delay;
    };
    const auto first = std::find_if(struck.begin(), struck.end(), ends);
    const std::string name = struck.empty() ? "nothing" : std::string(planted::name(struck.back().fault.kind));
    if (failed == 0 && first == struck.end()) {
        kind = name + (same ? ": the bits of the faultless run" : ": other numbers, unseen as documented");
        if (same) { return ""; }
        if (spoilt == struck.end()) { return "other numbers without an error"; }
        const bool documented = std::any_of(struck.begin(), struck.end(), [&](const auto& one) {
            return one.fault.kind == FaultKind::wrong_data && may_stay_unseen(trial, one.what);
        });
        return documented ? "" : "other numbers, which nothing has found";
    }
    const auto left = std::count_if(struck.begin(), struck.end(),
                                    [](const auto& one) { return one.fault.kind == FaultKind::leave; });
    if (failed == 0 && static_cast<std::size_t>(left) == trial.ranks) {
        kind = "leave: every rank, and none waits";
        return "";
    }
    kind = name + ": an error";
    if (spoilt != struck.end() || struck.size() != 1) { return failed > 0 ? "" : "no rank has an error"; }
    if (first == struck.end()) { return "an error, where a rank was only late"; }
    const std::size_t at = first->fault.rank;
    const std::string culprit = "rank " + std::to_string(at);
    for (std::size_t rank = 0; rank < trial.ranks; ++rank) {
        const std::string& error = result.errors[rank];
        const bool own = rank == at;
        bool told = false;
        switch (first->fault.kind) {
            case FaultKind::error:
                told = has(error, "planted: " + first->what);
                break;
            case FaultKind::out_of_memory:
                told = (own || has(error, culprit + " failed")) &&
                       (has(error, "no memory for") || has(error, "bad_alloc"));
                break;
            case FaultKind::leave:
                told = own ? error.empty() : has(error, culprit + " returned before");
                break;
            case FaultKind::hang:
                told = own ? error.empty() : has(error, culprit + " has not entered");
                break;
            default:
                break;
        }
        if (!told) { return "rank " + std::to_string(rank) + " does not say what was planted"; }
    }
    return "";
}

volatile std::sig_atomic_t running_low = 0;  // the seed that runs, for handlers
volatile std::sig_atomic_t running_high = 0;
void last_words(int signal) {
    char text[96];
    const unsigned long long seed = static_cast<unsigned long long>(static_cast<unsigned>(running_high)) << 32U |
                                    static_cast<unsigned>(running_low);
    const int length = std::snprintf(text, sizeof text, "WRONG: seed %llu: %s\n", seed,
                                     signal == SIGALRM ? "it does not end" : "it crashes");
    static_cast<void>(!write(STDOUT_FILENO, text, static_cast<std::size_t>(length)));
    _exit(3);
}
void watch(std::uint64_t seed) {
    running_low = static_cast<std::sig_atomic_t>(seed & 0xFFFFFFFFU);
    running_high = static_cast<std::sig_atomic_t>(seed >> 32U);
    alarm(120);
}

/// Runs a seed; returns whether it went as it must.
bool soak_one(std::uint64_t seed, std::map<std::string, std::size_t>& kinds, bool tell) {
    const Trial trial = trial_of(seed);
    watch(seed);
    planted::Faults faults(plan_of(seed, trial));
    const Result result = run(trial, faults, seed % 100 == 99 ? 200ms : 60000ms);
    std::string kind;
    const std::string what = wrong(trial, faults, result, kind);
    ++kinds[kind];
    if (what.empty() && !tell) { return true; }
    std::printf("%s: seed %llu: %s\n  %s on %zu ranks%s, plan %s\n", what.empty() ? "ok" : "WRONG",
                static_cast<unsigned long long>(seed), what.empty() ? kind.c_str() : what.c_str(),
                std::string(trial.policy).c_str(), trial.ranks, trial.overlap ? " with overlap" : "",
                planted::text_of(faults.plan()).c_str());
    for (const auto& struck : faults.struck()) { std::printf("  struck: %s\n", struck.what.c_str()); }
    for (std::size_t rank = 0; rank < trial.ranks; ++rank) {
        std::printf("  rank %zu: %s\n", rank, result.errors[rank].empty() ? "returned" : result.errors[rank].c_str());
    }
    return what.empty();
}

/// Prints how long each kind takes from the fault to the last other rank's end.
void times() {
    constexpr auto timeout = 300ms;
    const std::array<FaultKind, 4> kinds{FaultKind::error, FaultKind::out_of_memory, FaultKind::leave,
                                         FaultKind::hang};
    for (const FaultKind kind : kinds) {
        std::vector<double> seconds;
        for (std::uint64_t seed = 0; seed < 50; ++seed) {
            const Trial trial{policies[seed % 5], 4, false};
            watch(seed);
            const auto most = faultless(trial).most;
            planted::Faults faults(planted::plan_of(
                seed, {.ranks = 4, .calls = most.calls - 1, .buffers = most.buffers, .kinds = {kind}}));
            const Result result = run(trial, faults, kind == FaultKind::hang ? timeout : 60000ms);
            auto last = faults.struck().at(0).when;
            for (std::size_t rank = 0; rank < 4; ++rank) {
                if (rank != faults.plan()[0].rank) { last = std::max(last, result.ended[rank]); }
            }
            seconds.push_back(std::chrono::duration<double>(last - faults.struck()[0].when).count());
        }
        std::sort(seconds.begin(), seconds.end());
        std::printf("%-14s median %.4f s, longest %.4f s%s\n", std::string(planted::name(kind)).c_str(),
                    seconds[seconds.size() / 2], seconds.back(),
                    kind == FaultKind::hang ? ", the deadline of 0.3 s included" : "");
    }
}

}  // namespace

int main(int count, char** arguments) {
    std::uint64_t from = 0;
    std::uint64_t seeds = 100000;
    bool tell = false;
    for (int i = 1; i < count; ++i) {
        const std::string_view flag = arguments[i];
        const auto number = [&] { return i + 1 < count ? std::strtoull(arguments[++i], nullptr, 10) : 0; };
        if (flag == "--times") {
            times();
            return EXIT_SUCCESS;
        }
        if (flag == "--seeds") { seeds = number(); }
        if (flag == "--from") { from = number(); }
        if (flag == "--seed") {
            from = number();
            seeds = 1;
            tell = true;
        }
    }
    for (const int signal : {SIGALRM, SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) { std::signal(signal, last_words); }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::map<std::string, std::size_t> kinds;
    std::size_t wrong = 0;
    for (std::uint64_t seed = from; seed < from + seeds; ++seed) { wrong += soak_one(seed, kinds, tell) ? 0U : 1U; }
    for (const auto& [kind, runs] : kinds) { std::printf("%8zu  %s\n", runs, kind.c_str()); }
    std::printf("%llu seeds, %zu wrong\n", static_cast<unsigned long long>(seeds), wrong);
    return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
