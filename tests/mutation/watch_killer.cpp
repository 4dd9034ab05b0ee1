// SPDX-License-Identifier: Apache-2.0
// What every mutant of the watch of a World on NCCL must fail: a sum that it ends, as the other rank is gone, passes
// for done neither where it is waited for nor in the flight record.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>

#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/recorder/record_files.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "../../examples/who_is_missing/read_record.hpp"
#include "temporary_folder.hpp"
#include "unit/backend/nccl/gpu_ranks.hpp"

int main() {
    using namespace shardkit;
    const temporary_folder::Folder folder;
    gpu_ranks::restart(standin::Pace::eager);
    nccl::Options options = gpu_ranks::impatient();
    options.record = folder.file("run");
    std::atomic<bool> waited_for = false;
    std::atomic<bool> recorded = false;
    gpu_ranks::with_world(2, options, [&](const gpu_ranks::Comm& comm, nccl::World& world) {
        auto values = world.communicator().buffer<float>(100);
        const shardkit::gpu::TimelineRef stream(world.streams().communication);
        barrier(comm, stream);
        stream.synchronize();
        if (comm.rank() == 1) { standin::kill_rank(nccl::native(comm)); }
        while (standin::all_live(nccl::native(comm))) { std::this_thread::yield(); }
        if (comm.rank() == 1) { return; }
        all_reduce_in_place(comm, ReduceOp::sum, values.span(), stream);
        while (cudaStreamQuery(stream.native()) != cudaSuccess) { std::this_thread::yield(); }
        try {
            stream.synchronize();
            waited_for = true;
        } catch (const CommError&) {}  // as it should be
        const std::string file = recorder::record_file(options.record, 0);
        std::filesystem::remove(file);
        recorder::request_records();
        while (!std::filesystem::exists(file)) { std::this_thread::yield(); }
        recorded = flight_records::read_record(file).calls.back().done != 0;
    });
    if (waited_for) { std::printf("a wait took an aborted sum for done\n"); }
    if (recorded) { std::printf("an aborted sum is recorded as done\n"); }
    return waited_for || recorded ? 1 : 0;
}
