// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../../examples/cuda_trainer/after.hpp"
#include "../../examples/cuda_trainer/before.hpp"
#include "../../examples/cuda_trainer/program.hpp"
#ifndef SHARDKIT_COMPILED
#include "../unit/backend/nccl/given_kernels.hpp"
#endif
#include "launch_loop.hpp"
#include "standin.hpp"

/// The trainers on ranks that are threads, each with a GPU of the stand-in and kernels on the host.
namespace trainer_ranks {

using namespace cuda_trainer;
#ifdef SHARDKIT_COMPILED
inline void forget_launches() {}  // the core has them
#else
inline void forget_launches() {
    host_functions::Kept::all().forget();
    // What kernels.cu lists.
    CHECK(host_functions::given_beside(shardkit::nccl::detail::training_kernels<shardkit::DefaultPrecision<float>,
                                                                                shardkit::rules::AdamWRule>()) == "");
}
#endif
using Means = std::vector<double>;  // of the losses, one for each step
using Train = std::function<Means(const Options&, const std::vector<Token>&, Job&, const Report&)>;

/// Small chunks, and a rank that waits longer has lost its peers: the test fails instead of hanging.
inline shardkit::nccl::Options small_and_patient() {
    shardkit::nccl::Options options;
    options.timeout = std::chrono::seconds(60);
    options.arena_chunk_bytes = std::size_t{1} << 20U;
    options.staging_bytes = options.most_staging_bytes = std::size_t{1} << 16U;
    return options;
}
inline Train sharded_with(shardkit::nccl::Options nccl) {
    return [nccl](const Options& options, const std::vector<Token>& text, Job& job, const Report& report) {
        return after::train(options, text, job, report, nccl);
    };
}
inline Train sharded() { return sharded_with(small_and_patient()); }

/// With a communication stream of the trainer's own, at a pace of its own.
inline Train sharded_communicating(standin::Pace pace) {
    return [pace](const Options& options, const std::vector<Token>& text, Job& job, const Report& report) {
        struct Stream {
            cudaStream_t native = nullptr;
            Stream() {
                check(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
            }
            ~Stream() { static_cast<void>(cudaStreamDestroy(native)); }
        } const communication;
        standin::set_pace(communication.native, pace);
        shardkit::nccl::Options nccl = small_and_patient();
        nccl.communication = communication.native;
        return after::train(options, text, job, report, nccl);
    };
}

/// A licence is English, and not written for a test.
inline const std::string real_text = std::string(SHARDKIT_GOLDEN_DIR) + "/../../LICENSE";

/// A model that two slow cores train in seconds.
inline Options small_options() {
    Options options;
    options.model.sequence = 8;
    options.model.width = 16;
    options.model.layers = 2;
    options.model.heads = 2;
    options.text = real_text;
    options.batch = 24;
    options.steps = 6;
    options.every = 1;
    options.learning_rate = 3e-3;
    return options;
}

/// The policy of a name, with so many ranks in a group where it has some.
inline program::PolicyChoice chosen(const std::string& name, std::size_t group = 1) {
    const bool groups = name.starts_with("hybrid") || name.starts_with("secondary");
    return program::parse_policy("--policy", groups ? name + ":" + std::to_string(group) : name);
}

/// Lets the ranks meet.
class Meeting {
  public:
    explicit Meeting(std::size_t ranks) : ranks_(ranks) {}
    /// The last one to come calls `f` while the others wait.
    template <class F>
    void meet(const F& f) {
        std::unique_lock lock(mutex_);
        const std::size_t meeting = come_ / ranks_;
        if (++come_ % ranks_ == 0) {
            f();
            changed_.notify_all();
        } else {
            changed_.wait(lock, [&] { return come_ / ranks_ > meeting; });
        }
    }

  private:
    std::size_t ranks_;
    std::size_t come_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
};

struct Run {
    std::vector<Means> losses;        ///< of every rank
    std::vector<std::string> errors;  ///< what every rank ended with; empty: nothing
    std::vector<std::size_t> bytes;   ///< what every rank reported of its model

    /// Losses that all ranks agree about.
    const Means& all() const {
        for (std::size_t rank = 0; rank < losses.size(); ++rank) {
            if (!errors[rank].empty()) { throw std::runtime_error(errors[rank]); }
            if (losses[rank] != losses[0]) { throw std::runtime_error("the ranks print different losses"); }
        }
        return losses[0];
    }
};

/// `train` on every rank; on_step(rank, step) may throw.
inline Run run(
    std::size_t ranks, const Options& options, const Train& train,
    const std::function<void(std::size_t, std::size_t)>& on_step = [](std::size_t, std::size_t) {}) {
    Run result{std::vector<Means>(ranks), std::vector<std::string>(ranks), std::vector<std::size_t>(ranks)};
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                Job job(static_cast<int>(rank), id, rank, ranks);
                const std::vector<Token> text = read_text(options);
                Report report;
                report.model_bytes = [&](std::size_t bytes) { result.bytes[rank] = bytes; };
                report.step = [&](std::size_t step, double) { on_step(rank, step); };
                result.losses[rank] = train(options, text, job, report);
            } catch (const std::exception& error) { result.errors[rank] = error.what(); }
        });
    }
    for (std::thread& thread : threads) { thread.join(); }
    if (standin::live().queued == 0) { forget_launches(); }
    return result;
}

}  // namespace trainer_ranks
