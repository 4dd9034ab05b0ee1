// SPDX-License-Identifier: Apache-2.0
// A trainer that knows neither CUDA's headers nor NCCL's, in one binary on threads, on NCCL, and on a communicator
// and a stream that its code base lends: the same numbers on each, and what does not fit is refused with both sides
// named.
#ifndef SHARDKIT_COMPILED
#define SHARDKIT_COMPILED
#endif
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/checkpoint.hpp>
#include <shardkit/expert_parallel.hpp>
#include <shardkit/muon.hpp>
#include <shardkit/nccl.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>
#include <shardkit/tensor_parallel.hpp>
#include <shardkit/verbs.hpp>
#include <shardkit/verify.hpp>

#include "on_nccl_kernels.hpp"

#ifdef CUDART_VERSION
#error "a trainer of the compiled form has read CUDA's headers"
#endif

namespace sk = shardkit;

namespace {

constexpr std::size_t ranks = 3;
constexpr std::size_t width = 1000;
struct Weight : sk::Param<"weight", float, width> {};
using Layer = sk::Sharded<Weight, sk::FullShard>;

std::mutex printing;
bool right = true;
void expect(bool holds, std::string_view what) {
    if (holds) { return; }
    const std::lock_guard lock(printing);
    std::fprintf(stderr, "not so: %.*s\n", static_cast<int>(what.size()), what.data());
    right = false;
}
/// `f` throws what names all of these.
template <class Error, class F>
void expect_refused(const F& f, std::initializer_list<std::string_view> names) {
    try {
        f();
    } catch (const Error& error) {
        for (const std::string_view name : names) {
            expect(std::string_view(error.what()).find(name) != std::string_view::npos,
                   std::string(name) + " in: " + error.what());
        }
        return;
    }
    expect(false, "it is refused: " + std::string(*names.begin()));
}

/// What a trainer that runs on any engine asks of it beside the library.
struct Device {
    CUstream_st* stream = nullptr;  // null on the host

    void add(std::span<float> to, float value) const {
        if (stream != nullptr) { return code_base::add(to.data(), to.size(), value, stream); }
        for (float& element : to) { element += value; }
    }
    std::vector<float> read(const sk::Rank& rank, std::span<const float> from) const {
        std::vector<float> values(from.begin(), stream == nullptr ? from.end() : from.begin());
        if (stream != nullptr) {
            values.resize(from.size());
            code_base::copy_to_host(from.data(), from.size(), values.data(), stream);
        }
        rank.compute_stream().synchronize();
        return values;
    }
};

bool all_are(const std::vector<float>& values, float expected) {
    return std::all_of(values.begin(), values.end(), [=](float v) { return std::abs(v - expected) < 1e-6F; });
}

/// README's trainer, with the gradients r + 1 of rank r.
void train(sk::Rank& rank, const Device& device) {
    Layer layer{rank, "layer"};
    sk::Model model{layer};
    sk::AdamW optimizer{model, {.learning_rate = 0.5}};
    sk::Accumulation accumulation{model};
    auto gradients = accumulation.gradients(layer);
    device.add({gradients[Weight{}].data(), width}, static_cast<float>(rank.rank() + 1));
    accumulation.add(std::move(gradients));
    const auto norm = optimizer.step(std::move(accumulation));
    const auto window = layer.unshard();
    expect(all_are(device.read(rank, {window[Weight{}].data(), width}), -0.5F), "a weight is -0.5");
    const double mean = (ranks + 1) / 2.0;
    expect(std::abs(norm.value() - std::sqrt(mean * mean * width)) < 1e-9, "the norm");
    expect(norm.found_inf() == sk::FoundInf::no && rank.read(norm.data()) == mean * mean * width, "the norm's data");
}

/// Memory, streams and verbs of a trainer's own.
void communicate(sk::Rank& rank, const Device& device) {
    const auto mine = static_cast<float>(rank.rank());
    const auto shard = rank.buffer<float>(4);
    const auto full = rank.buffer<float>(4 * ranks);
    expect(shard.size() == 4 && full.span().size() == 4 * ranks && rank.buffer<float>(0).data() == nullptr, "sizes");
    device.add(shard.span(), mine);
    sk::all_gather(rank.world(), shard.span(), full.span(), rank.compute_stream());
    const std::vector<float> gathered = device.read(rank, full.span());
    for (std::size_t i = 0; i < gathered.size(); ++i) {
        expect(gathered[i] == static_cast<float>(i / 4), "an all-gather");  // NOLINT
    }
    sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, full.span());
    expect(device.read(rank, full.span()).back() == static_cast<float>(ranks * (ranks - 1)), "an all-reduce");
    sk::reduce_scatter(rank.world(), sk::ReduceOp::max, full.span(), shard.span());
    expect(all_are(device.read(rank, shard.span()), mine * ranks), "a reduce-scatter");
    sk::broadcast(rank.world(), shard.span(), 1);
    expect(all_are(device.read(rank, shard.span()), ranks), "a broadcast");
    const auto sent = rank.buffer<float>(ranks);
    const auto received = rank.world().buffer<float>(ranks);
    device.add(sent.span(), mine);
    sk::all_to_all(rank.world(), sent.span(), received.span());
    const std::vector<float> all = device.read(rank, received.span());
    for (std::size_t i = 0; i < ranks; ++i) { expect(all[i] == static_cast<float>(i), "an all-to-all"); }
    // Two elements for the next rank, and none for others.
    std::array<std::size_t, ranks> sends{};
    std::array<std::size_t, ranks> receives{};
    const std::size_t next = (rank.rank() + 1) % ranks;
    const std::size_t before = (rank.rank() + ranks - 1) % ranks;
    sends[next] = 2;
    receives[before] = 2;
    sk::all_to_all_uneven(rank.world(), sent.span().first(2), sends, received.span().first(2), receives);
    expect(device.read(rank, received.span())[1] == static_cast<float>(before), "an uneven all-to-all");
    sk::send_receive(rank.world(), sent.span(), next, shard.span().first(ranks), before);
    expect(device.read(rank, shard.span())[0] == static_cast<float>(before), "a message to the next rank");
    sk::barrier(rank.world());

    const auto dp = rank.sub_mesh(sk::Axes<sk::Dp>{});
    expect(dp.size() == ranks && sk::all_reduce_value(rank, dp, 2) == 2 * static_cast<int>(ranks), "a sub-mesh");
    expect(sk::all_reduce_value(rank, static_cast<double>(rank.rank()), sk::ReduceOp::max) == ranks - 1, "a value");
    expect(sk::exact_sum(rank, std::array{0.5}) == 0.5 * ranks, "an exact sum");

    const auto compute = rank.compute_stream();
    const auto communication = rank.communication_stream();
    const auto addend = rank.buffer<float>(4);
    device.add(addend.span(), mine + 1);
    communication.wait(compute.record());
    sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, addend.span(), communication);
    compute.wait(communication.record());
    expect(all_are(device.read(rank, addend.span()), ranks * (ranks + 1) / 2),
           "an all-reduce in the order of another stream");
    communication.synchronize();
    rank.synchronize();
}

/// A rank over a communicator of NCCL's is its World's to make.
void refuse_rank(sk::Rank& rank) {
    expect_refused<sk::UsageError>(
        [&] {
            const sk::MeshRank<sk::DeviceMesh<ranks>> other{sk::DeviceMesh<ranks>{}, rank.world()};
        },
        {"engine nccl", "nccl::make_rank", "on_nccl.cpp"});
}

/// Tokens of experts that two ranks share: on rank r one for expert 0, and two for expert 2, which the second one
/// has.
void exchange_tokens() {
    sk::threads::run(sk::ExpertMesh<sk::DeviceMesh<4>, 2>{}, [](auto& rank) {
        sk::ep::TokenExchange exchange{rank, sk::ep::ranks(rank), 4};
        const auto routes = exchange.route(std::array<std::size_t, 4>{1, 0, 2, 0});
        const bool second = rank.rank() % 2 == 1;
        expect(exchange.ranks().size() == 2 && routes.rows_received() == (second ? 4U : 2U), "rows of two sources");
        const std::vector<float> sent(3, static_cast<float>(rank.rank()));
        std::vector<float> received(routes.rows_received());
        std::vector<float> back(3);
        exchange.dispatch(routes, 1, std::span(sent), std::span(received));
        const auto first = static_cast<float>(rank.rank() - (second ? 1 : 0));
        expect(received.front() == first && received.back() == first + 1, "tokens come source by source");
        exchange.combine(routes, 1, std::span<const float>(received), std::span(back));
        expect(back == sent, "and go back");
    });
}

void run_on_nccl(const auto& body) {
    const auto id = sk::nccl::UniqueId::create();
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] {
            sk::nccl::Options options;
            options.device = static_cast<int>(r);
            sk::nccl::World world(id, ranks, r, options);
            expect(world.device() == options.device, "the World's device");
            sk::nccl::run(sk::DeviceMesh<ranks>{}, world, body);
        });
    }
}
void run_on_lent(const auto& body) {
    sk::nccl::UniqueId id;
    code_base::make_id(id.bytes.data());
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] {
            const code_base::Job job(id.bytes.data(), ranks, r);
            sk::nccl::World world(sk::nccl::Borrow{job.comm}, {.compute = job.stream});
            sk::nccl::run(sk::DeviceMesh<ranks>{}, world, [&](sk::Rank& rank) {
                expect(sk::nccl::stream(rank) == job.stream, "the lent stream");
                expect(sk::nccl::native(rank.world()) == job.comm, "the lent communicator");
                body(rank);
            });
        });
    }
}

/// Ranks without a function that they end with, over a communicator of the user's for dp; then one leaves, and the
/// others go on in a World of their own.
void run_one_by_one() {
    const auto id = sk::nccl::UniqueId::create();
    sk::nccl::UniqueId lent;
    code_base::make_id(lent.bytes.data());
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] {
            const code_base::Job job(lent.bytes.data(), ranks, r);
            sk::nccl::Options options;
            options.device = static_cast<int>(r);
            sk::nccl::World world(id, ranks, r, options);
            {
                auto rank = sk::nccl::make_rank(sk::DeviceMesh<ranks>{}, world);
                rank.adopt(sk::Axes<sk::Dp>{}, sk::nccl::borrow(world, sk::nccl::Borrow{job.comm}, "dp"));
                expect(sk::nccl::native(rank.sub_mesh(sk::Axes<sk::Dp>{})) == job.comm, "the lent sub-communicator");
                expect(rank.mesh().size() == ranks && rank.rank() == r, "a rank's place");
                train(rank, {sk::nccl::stream(rank)});
                expect_refused<std::invalid_argument>([&] { rank.adopt(sk::Axes<sk::Tp>{}, rank.world()); },
                                                      {"self", "3 ranks", "1 ranks"});
            }
            const std::array<std::size_t, 1> lost{0};
            if (r == 0) { return world.abort(); }
            const sk::nccl::Survivors survivors{world, lost};
            sk::nccl::World fewer(survivors, options);
            auto rank = sk::nccl::make_rank(sk::DeviceMesh<ranks - 1>{}, fewer);
            expect(rank.rank() == r - 1 && sk::all_reduce_value(rank, 1) == static_cast<int>(ranks) - 1, "survivors");
            fewer.finish();
        });
    }
}

void train_everywhere() {
    sk::threads::run(sk::DeviceMesh<ranks>{}, [](sk::Rank& rank) {
        train(rank, {});
        communicate(rank, {});
        expect_refused<sk::UsageError>([&] { static_cast<void>(sk::nccl::stream(rank)); },
                                       {"a stream of the host", "nccl"});
        expect_refused<sk::UsageError>([&] { static_cast<void>(sk::nccl::native(rank.world())); },
                                       {"threads", "nccl", "on_nccl.cpp"});
    });
    const auto on_device = [](sk::Rank& rank) {
        const Device device{sk::nccl::stream(rank)};
        train(rank, device);
        communicate(rank, device);
        refuse_rank(rank);
        const auto memory = rank.buffer<float>(1);
        sk::host::AnyKernels::fill(rank.compute_stream(), memory.span(), 2.0F);
        expect(rank.read(memory.data()) == 2, "a kernel of the core's list");
        expect_refused<sk::UsageError>(
            [&] { sk::host::AnyKernels::fill<std::int32_t>(rank.compute_stream(), {}, 1); },
            {"no file of this program launches the kernel", "Fill<int>"});
        std::vector<float> of_host(1);
        expect_refused<std::invalid_argument>(
            [&] { sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, of_host); }, {"device"});
    };
    run_on_nccl(on_device);
    run_on_lent(on_device);
    run_one_by_one();
    exchange_tokens();
}

/// Groups of two engines in one program, which belong to none of the other's models, steps and loss scales.
void refuse_other_engines() {
    sk::self::run(sk::DeviceMesh<1>{}, [](sk::Rank& host) {
        const auto id = sk::nccl::UniqueId::create();
        sk::nccl::World world(id, 1, 0);
        sk::nccl::run(sk::DeviceMesh<1>{}, world, [&](sk::Rank& gpu) {
            Layer on_host{host, "on_host"};
            Layer on_gpu{gpu, "on_gpu"};
            sk::Model both{on_host, on_gpu};
            expect_refused<sk::UsageError>([&] { const sk::Accumulation begun{both}; },
                                           {"on_host", "on_gpu", "one rank", "on_nccl.cpp"});
            sk::Model of_host{on_host};
            sk::Model of_gpu{on_gpu};
            sk::AdamW optimizer{of_gpu};
            sk::Accumulation accumulation{of_host};
            expect_refused<sk::UsageError>([&] { accumulation.skip(on_gpu); }, {"on_gpu", "on_nccl.cpp"});
            accumulation.skip(on_host);
            sk::LossScale scale{gpu};
            expect_refused<sk::UsageError>(
                [&] { static_cast<void>(sk::reduce(std::move(accumulation), sk::mean, scale)); },
                {"LossScale", "on_host", "one rank", "on_nccl.cpp"});
            expect_refused<sk::UsageError>([&] { optimizer.step(std::move(accumulation)); }, {"on_nccl.cpp"});
            const sk::Model again{on_gpu};
            expect(!(of_host == of_gpu) && of_gpu == again, "models are compared");
        });
    });
}

}  // namespace

int main() {
    train_everywhere();
    refuse_other_engines();
    if (right) { std::printf("one trainer on threads, on NCCL and on a lent communicator\n"); }
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
