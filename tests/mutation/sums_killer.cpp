// SPDX-License-Identifier: Apache-2.0
// What every mutant of a wait in backend/nccl/ and of a checkpoint's copies must fail: 16-bit sums, whole and in
// pieces that two streams work on, and copies behind them, over the CUDA stand-in, whose streams work as early or as
// late as their order allows.
#include <barrier>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <shardkit/backend/cuda/pinned_copies.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>

#include "unit/backend/nccl/gpu_ranks.hpp"

namespace {

using namespace shardkit;
using gpu_ranks::Comm;
using Kernels = host_functions::Kernels;
using Stream = gpu::TimelineRef;

constexpr std::size_t ranks = 3;
constexpr std::size_t k = 700;  // of a rank's shard, in pieces of 128

float addend(std::size_t rank, std::size_t i) { return static_cast<float>((i * 7 + rank * 3) % 11); }
float sum(std::size_t i) { return addend(0, i) + addend(1, i) + addend(2, i); }

template <class T>
using Memory = verb_values::Bench<Comm>::Memory<T>;

template <class From, class To>
void convert(const Stream& stream, std::span<const From> from, std::span<To> to) {
    Kernels::convert(stream, from, to);
}

/// Wrong elements of what was summed, as floats; the first of them is number `first`.
std::size_t wrong_sums(Memory<float>& results, std::size_t count, std::size_t first) {
    std::vector<float> values(count);
    results.read(values);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) { wrong += values[i] == sum(first + i) ? 0U : 1U; }
    return wrong;
}

/// The addends are written, and the sums read, by work of the stream right before and behind the verb.
template <class Out>
std::size_t check_sums(const Comm& comm, const Stream& stream) {
    std::vector<float> host(ranks * k);
    std::vector<bf16> none(ranks * k);
    std::vector<Out> empty(ranks * k);
    std::vector<float> results(ranks * k);
    for (std::size_t i = 0; i < host.size(); ++i) { host[i] = addend(comm.rank(), i); }
    Memory<float> source(comm, host);
    Memory<bf16> addends(comm, none);
    Memory<Out> sums(comm, empty);
    Memory<float> whole(comm, results);
    Memory<float> shard(comm, std::span<float>(results).first(k));
    source.write(host);
    stream.synchronize();
    const auto write_addends = [&] {
        convert(stream, std::span<const float>(source.data(), ranks * k), std::span<bf16>(addends.data(), ranks * k));
    };
    const std::span<const bf16> in(addends.data(), ranks * k);
    std::size_t wrong = 0;
    for (int round = 0; round < 2; ++round) {
        write_addends();
        all_reduce(comm, ReduceOp::sum, in, std::span<Out>(sums.data(), ranks * k), stream);
        convert(stream, std::span<const Out>(sums.data(), ranks * k), std::span<float>(whole.data(), ranks * k));
        Kernels::fill(stream, std::span<bf16>(addends.data(), ranks * k), bf16(100.0F));
        write_addends();
        reduce_scatter(comm, ReduceOp::sum, in, std::span<Out>(sums.data(), k), stream);
        convert(stream, std::span<const Out>(sums.data(), k), std::span<float>(shard.data(), k));
        Kernels::fill(stream, std::span<bf16>(addends.data(), ranks * k), bf16(100.0F));
        wrong += wrong_sums(whole, ranks * k, 0) + wrong_sums(shard, k, comm.rank() * k);
    }
    return wrong;
}

/// Two verbs of different streams share the staging memory; rank 0 has given both when the others begin.
std::size_t check_verbs_in_turn(const Comm& comm, std::barrier<>& others) {
    constexpr std::size_t n = 32;
    const auto streams = comm.streams();
    const Stream compute(streams.compute);
    const Stream communication(streams.communication);
    std::vector<float> none(n);
    std::vector<bf16> addends(n);
    std::vector<bf16> hundreds(n, bf16(100.0F));
    for (std::size_t i = 0; i < n; ++i) { addends[i] = bf16(addend(comm.rank(), i)); }
    Memory<bf16> first(comm, addends);
    first.write(addends);
    Memory<bf16> second(comm, hundreds);
    second.write(hundreds);
    communication.synchronize();
    Memory<float> sums(comm, none);
    Memory<float> others_sums(comm, none);
    if (comm.rank() != 0) { others.arrive_and_wait(); }
    all_reduce(comm, ReduceOp::sum, std::span<const bf16>(first.data(), n), std::span<float>(sums.data(), n),
               compute);
    all_reduce(comm, ReduceOp::sum, std::span<const bf16>(second.data(), n), std::span<float>(others_sums.data(), n),
               communication);
    if (comm.rank() == 0) { others.arrive_and_wait(); }
    compute.synchronize();
    return wrong_sums(sums, n, 0);
}

/// A checkpoint's copy of what a kernel of the compute stream writes right before it.
std::size_t check_copies(const Comm& comm, const Stream& compute) {
    std::vector<float> host(k);
    std::vector<bf16> none(k);
    for (std::size_t i = 0; i < k; ++i) { host[i] = addend(comm.rank(), i); }
    Memory<float> source(comm, host);
    Memory<bf16> written(comm, none);
    source.write(host);
    comm.streams().communication.synchronize();
    const std::span<bf16> values(written.data(), k);
    convert(compute, std::span<const float>(source.data(), k), values);
    gpu::detail::PinnedCopies copies(compute);
    copies.begin_read(0, std::as_bytes(values));
    std::vector<bf16> read(k);
    std::memcpy(read.data(), copies.finish(0).data(), k * sizeof(bf16));
    compute.synchronize();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < k; ++i) { wrong += static_cast<float>(read[i]) == host[i] ? 0U : 1U; }
    return wrong;
}

struct Paces {
    const char* text;
    standin::Pace verbs;
    standin::Pace conversions;
};

std::string first_wrong() {
    using standin::Pace;
    for (const Paces paces :
         {Paces{"lazy", Pace::lazy, Pace::lazy}, Paces{"eager", Pace::eager, Pace::eager},
          Paces{"early conversions", Pace::lazy, Pace::eager}, Paces{"early verbs", Pace::eager, Pace::lazy}}) {
        gpu_ranks::restart();
        nccl::Options options = gpu_ranks::patient();
        options.staging_bytes = 1;  // the least that there is
        std::vector<std::size_t> wrong(ranks);
        std::barrier<> others(ranks);
        const auto outcomes = gpu_ranks::with_world(ranks, options, [&](const Comm& comm, nccl::World& world) {
            standin::set_pace(world.streams().communication.native(), paces.verbs);
            standin::set_pace(world.state().conversions().native(), paces.conversions);
            wrong[comm.rank()] = check_sums<bf16>(comm, Stream(world.streams().communication));
            wrong[comm.rank()] += check_sums<float>(comm, Stream(world.streams().communication));
            standin::set_pace(world.streams().compute.native(), paces.verbs);
            wrong[comm.rank()] += check_verbs_in_turn(comm, others);
            wrong[comm.rank()] += check_copies(comm, Stream(world.streams().compute));
        });
        if (const std::string error = gpu_ranks::first_error(outcomes); !error.empty()) { return error; }
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            if (wrong[rank] != 0) {
                return std::to_string(wrong[rank]) + " wrong values on rank " + std::to_string(rank) + ", " +
                       paces.text;
            }
        }
    }
    return {};
}

}  // namespace

int main() {
    const std::string wrong = first_wrong();
    std::puts(wrong.empty() ? "sums are right at every pace" : wrong.c_str());
    return wrong.empty() ? 0 : 1;
}
