// SPDX-License-Identifier: Apache-2.0
// soak_mpi FROM TO FOLDER: the faults of the seeds from FROM on, below TO, on ranks that are processes, over the
// small trainer. A fault that ends with an error ends the job; soak_mpi.py starts the next one behind it, and reads
// the lines.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "soaked_trainer.hpp"

namespace {

namespace sk = shardkit;
using namespace soak;
using namespace std::chrono_literals;

struct Faultless {
    Numbers numbers;
    planted::Faults::Count most;
};

double seconds_since_1970() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Says on standard error that a fault has struck: at once, as it may end the process.
void tell(std::uint64_t seed, const Fault& fault, const std::string& what) {
    std::fprintf(stderr, "seed %llu struck %.6f %s: %s\n", static_cast<unsigned long long>(seed),
                 seconds_since_1970(), std::string(planted::name(fault.kind)).c_str(), what.c_str());
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 4) { return EXIT_FAILURE; }
    const std::uint64_t from = std::strtoull(arguments[1], nullptr, 10);
    const std::uint64_t to = std::strtoull(arguments[2], nullptr, 10);
    const std::string folder = arguments[3];
    const sk::mpi::Environment mpi;
    const std::size_t ranks = sk::mpi::Environment::size();
    std::map<std::string_view, Faultless> known;
    for (std::uint64_t seed = from; seed < to; ++seed) {
        const Trial trial = trial_of(seed, ranks);
        Faultless& faultless = known[trial.policy];
        const auto run = [&](planted::Faults& faults, Numbers& numbers, const sk::mpi::Options& options) {
            sk::mpi::run(
                sk::DeviceMesh{ranks},
                [&](auto& rank) {
                    planted::with_faults(rank, faults, [&](auto& faulty) { train(faulty, trial.policy, numbers); });
                },
                {}, options);
        };
        sk::mpi::Options options;
        options.timeout = options.finish_timeout = 20s;
        if (faultless.most.calls == 0) {
            planted::Faults none;
            run(none, faultless.numbers, options);
            faultless.most = none.most();
        }
        planted::FaultChoice choice{
            .ranks = ranks, .calls = faultless.most.calls - 1, .buffers = faultless.most.buffers};
        choice.kinds.push_back(FaultKind::kill);
        if (seed % 50 == 49) { choice.kinds = {FaultKind::hang}; }
        planted::Faults faults(planted::plan_of(seed, choice),
                               [&](const auto& struck) { tell(seed, struck.fault, struck.what); });
        if (seed % 50 == 49) {
            options.timeout = options.finish_timeout = 300ms;
            options.record = folder + "/run";
        }
        if (mpi.rank() == 0) {
            std::fprintf(stderr, "seed %llu begins: %s on %zu ranks, plan %s\n",
                         static_cast<unsigned long long>(seed), std::string(trial.policy).c_str(), ranks,
                         planted::text_of(faults.plan()).c_str());
        }
        Numbers numbers;
        run(faults, numbers, options);
        const bool same = numbers == faultless.numbers;
        bool documented = same;
        for (const auto& struck : faults.struck()) { documented = documented || may_stay_unseen(trial, struck.what); }
        // Of wrong data on another rank only that rank knows where it was.
        std::fprintf(stderr, "seed %llu rank %zu: %s\n", static_cast<unsigned long long>(seed), mpi.rank(),
                     same         ? "same"
                     : documented ? "documented"
                                  : "different");
    }
    return EXIT_SUCCESS;
}
