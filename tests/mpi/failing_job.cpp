// SPDX-License-Identifier: Apache-2.0
// A job that goes wrong in the way that its first argument names; check_failures.py looks at how it ends.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/reshard.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>
#include <shardkit/verbs/send_receive.hpp>
#include <shardkit/verbs/split.hpp>

namespace {

namespace sk = shardkit;
using sk::mpi::ThreadLevel;

constexpr std::size_t culprit = 1;
// The first only bounds a hang. No rank but the culprit needs the others, on a busy machine either; the culprit comes
// when the job has long been ended, or is the only one that waits.
constexpr std::chrono::milliseconds patient(60000);
constexpr std::chrono::milliseconds of_a_world(5000);
constexpr std::chrono::milliseconds brief(1000);
constexpr std::chrono::seconds never(40);
constexpr std::chrono::seconds after_a_world(8);
/// Whether what goes wrong is found by the time that a rank waits, once all are there.
bool waits_briefly(std::string_view how) {
    return how == "late_to_message" || how == "late_to_split" || how == "too_late" || how == "brief_phase" ||
           how == "loop" || how == "order";
}
bool dies_in_split = false;

/// In every lane that there is.
template <class Rank>
void reduce(Rank& rank) {
    double of_layers = 1;
    double of_gradients = 1;
    const auto add = [&](double& value, const auto& stream) {
        sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, std::span<double>(&value, 1), stream);
    };
    add(of_layers, rank.communication_stream());
    add(of_gradients, rank.reduction_stream());
    rank.synchronize();
}

/// Gathers buffers that every rank reads from its peers, or reduces them in the lane of reductions, for ever or until
/// `culprit` kills itself in the middle of it, when all ranks are at it.
template <class Rank>
void read_for_ever(Rank& rank, bool reduces, bool kills) {
    auto shard = rank.template buffer<float>(std::size_t{4} << 20U);
    auto full = rank.template buffer<float>(shard.size() * rank.world_size());
    static std::atomic<bool> all_do = false;
    std::thread killer([kills = kills && rank.rank() == culprit] {
        all_do.wait(false);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        if (kills) { std::raise(SIGKILL); }
    });
    killer.detach();
    std::printf("process %d of rank %zu gathers\n", static_cast<int>(getpid()), rank.rank());
    std::fflush(stdout);
    while (true) {
        if (reduces) {
            const std::span<const float> addends(full.span());
            sk::reduce_scatter(rank.world(), sk::ReduceOp::sum, addends, shard.span(), rank.reduction_stream());
            rank.reduction_stream().synchronize();
        } else {
            sk::all_gather(rank.world(), std::span<const float>(shard.span()), full.span(), rank.compute_stream());
        }
        all_do.store(true);
        all_do.notify_one();
    }
}

/// Kills `culprit` in its second message.
class KilledInMessage final : public sk::host::DecoratedVerbs {
  public:
    using DecoratedVerbs::DecoratedVerbs;

  private:
    void around(const sk::Call& call, sk::host::Memory, const sk::Stream&, const Inner& inner) const override {
        if (rank() == culprit && call.signature.verb == sk::Verb::send && ++messages_ == 2) { std::raise(SIGKILL); }
        inner();
    }
    std::shared_ptr<const sk::host::Verbs> decorate(std::shared_ptr<const sk::host::Verbs> verbs) const override {
        return std::make_shared<const KilledInMessage>(std::move(verbs));
    }

    mutable int messages_ = 0;
};

/// Brings a layer from one mesh of all ranks to another; `culprit` is killed between two messages.
template <class Rank>
void reshard_and_die(Rank& plain) {
    sk::MeshRank<sk::DeviceMesh<sk::dynamic>> rank{
        sk::DeviceMesh(plain.world_size()),
        sk::Communicator(std::make_shared<const KilledInMessage>(plain.world().verbs()))};
    using Tensors = sk::TensorList<float>;
    const Tensors tensors{{"w", {64, 1000}}, {"v", {64, 1000}}};
    sk::Sharded<Tensors, sk::FullShard> from(rank, "layer", tensors);
    sk::Sharded<Tensors, sk::NoShard> to(rank, "layer", tensors);
    from.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i % 977); });
    const auto bytes = [&] {
        std::vector<std::byte> all;
        for (const sk::ShardInfo& shard : from.shards()) {
            const auto* const first = static_cast<const std::byte*>(shard.data);
            all.insert(all.end(), first, first + shard.range.size() * sizeof(float));
        }
        return all;
    };
    const auto before = bytes();
    try {
        sk::reshard(rank, sk::Model{from}, sk::Model{to}, {.staging_bytes = 16384});
    } catch (const std::exception& error) {
        std::string refusal = "nothing";
        try {
            const auto window = to.unshard();
        } catch (const sk::UsageError& used) { refusal = used.what(); }
        const bool refused = refusal.find("but the reshard at") != refusal.npos;
        std::printf("rank %zu: the destination is %s, the source is %s\n", rank.rank(), refused ? "refused" : "used",
                    bytes() == before ? "as it was" : "another one");
        std::fflush(stdout);
        throw;
    }
}

/// Gathers from memory that `culprit`'s host sees, then from memory that it does not: every rank is its own host.
template <class Rank>
void hide(Rank& rank) {
    static const sk::engine::CallSubject parameters("'layer' parameters");
    const auto seen = rank.template buffer<float>(3 * 1000);
    std::vector<float> hidden(seen.size());
    for (const std::span<float> full :
         {seen.span(), rank.rank() == culprit ? std::span<float>(hidden) : seen.span()}) {
        sk::all_gather_in_place(rank.world(), full, rank.compute_stream(),
                                {sk::SourceLocation::current(), &parameters});
    }
}

/// Steps that follow a schedule; in the last one `culprit` uses the layers in another order.
template <class Rank>
void leave_schedule(Rank& rank) {
    using Layer = sk::Sharded<sk::TensorList<float>, sk::FullShard>;
    std::vector<Layer> layers;
    for (int i = 0; i < 3; ++i) {
        layers.emplace_back(rank, "layers." + std::to_string(i), sk::TensorList<float>{{"w", {64}}});
    }
    const sk::Model model{layers};
    sk::SGD optimizer{model, {}};
    const auto step = [&](bool leaves) {
        sk::Accumulation accumulation{model};
        for (std::size_t l = 0; l < layers.size(); ++l) {
            const auto window = layers[leaves ? layers.size() - 1 - l : l].unshard();
        }
        for (auto& layer : layers) { accumulation.add_zero(layer); }
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
    };
    const sk::Schedule recorded = sk::schedule::record(model, [&] { step(false); });
    const auto following = sk::schedule::follow(model, sk::schedule::prefetch(recorded, sk::describe_groups(model)));
    for (int s = 0; s < 3; ++s) { step(false); }
    step(rank.rank() == culprit);
    rank.synchronize();
}

template <class Rank>
void go_wrong(Rank& rank, std::string_view how) {
    {
        const auto until_all_are_here = rank.deadline(patient);
        for (int i = 0; i < 3; ++i) { reduce(rank); }
    }
    const bool mine = rank.rank() == culprit;
    const bool has_no_message = how == "late_to_message" && rank.rank() > 1;
    const auto phase = rank.deadline(how == "kill_in_split"                  ? of_a_world
                                     : waits_briefly(how) && !has_no_message ? brief
                                                                             : patient);
    if (mine) {
        std::puts("so far so good");
        std::fflush(stdout);
    }
    if (how == "throw" && mine) { throw std::runtime_error("planted"); }
    if (how == "throw_int" && mine) { throw 42; }
    if (how == "return" && mine) { return; }
    if (how == "kill" && mine) { std::raise(SIGKILL); }
    if (how == "kill_behind_the_last_call" || how == "late_to_finish") {
        if (mine && how != "late_to_finish") { std::raise(SIGKILL); }
        std::this_thread::sleep_for(mine ? never : never * 0);
        return;
    }
    if (how == "late_to_split" || how == "kill_in_split") {
        std::this_thread::sleep_for(mine && how == "late_to_split" ? never : never * 0);
        dies_in_split = mine && how == "kill_in_split";
        static_cast<void>(sk::split(rank.world(), 0, rank.rank(), "tp"));
    }
    if (how == "evaluation" || how == "brief_phase") {
        std::this_thread::sleep_for(!mine ? never * 0 : how == "evaluation" ? after_a_world : never);
        for (int i = 0; i < 2; ++i) { reduce(rank); }
    }
    if (how == "exit" && mine) { std::_Exit(3); }
    if (how == "kill_a_reader" || how == "read_for_ever") { read_for_ever(rank, false, how == "kill_a_reader"); }
    if (how == "kill_in_reshard") { reshard_and_die(rank); }
    if (how == "kill_a_reducer") { read_for_ever(rank, true, true); }
    if (how == "hide") { hide(rank); }
    if (how == "leave_schedule") { leave_schedule(rank); }
    if (how == "no_message" && mine) { return; }
    if (how == "no_message" && rank.rank() == 0) {
        double value = 0;
        sk::receive(rank.world(), std::span<double>(&value, 1), culprit, {});
    }
    if (how == "late_to_message" && rank.rank() < 2) {
        double value = 0;
        const std::span<double> one(&value, 1);
        std::this_thread::sleep_for(mine ? never : never * 0);
        mine ? sk::send(rank.world(), one, 0, {}) : sk::receive(rank.world(), one, culprit, {});
    }
    if (how == "too_late") { std::this_thread::sleep_for(mine ? never : never * 0); }
    if (how == "loop" && mine) {
        for (volatile bool on = true; on;) {}
    }
    if (how == "order") {
        const auto tp = sk::split(rank.world(), 0, rank.rank(), "tp");
        const auto dp = sk::split(rank.world(), 0, rank.rank(), "dp");
        sk::barrier(mine ? tp : dp, {});
        sk::barrier(mine ? dp : tp, {});
    }
    if (how == "size") {
        std::vector<double> values(mine ? 5 : 4);
        sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, std::span(values), {});
    }
    if (how == "late") { std::this_thread::sleep_for(std::chrono::milliseconds(mine ? 1500 : 0)); }
    for (int i = 0; i < 3; ++i) { reduce(rank); }
}

/// A program that initialises MPI itself, in the oldest way, and lends a communicator.
void lend() {
    MPI_Init(nullptr, nullptr);
    {
        sk::mpi::World world(sk::mpi::Borrow{MPI_COMM_WORLD}, {.timeout = std::chrono::seconds(20)});
        const sk::Communicator comm(world);
        double value = 1;
        sk::all_reduce_in_place(comm, sk::ReduceOp::sum, std::span<double>(&value, 1), {});
        std::printf("rank %zu: the sum is %g\n", comm.rank(), value);
        world.finish();
    }
    MPI_Finalize();
}

/// A C-like program: its objects are globals, made and ended by functions, and any function may call exit().
struct Globals {
    sk::mpi::Environment mpi;
    sk::mpi::World world;
    sk::MeshRank<sk::DeviceMesh<sk::dynamic>> rank;
    sk::Sharded<sk::TensorList<float>, sk::FullShard> layer;

    explicit Globals(bool overlap)
        : world(MPI_COMM_WORLD, {.overlap = overlap, .timeout = std::chrono::seconds(40)}),
          rank(sk::DeviceMesh<sk::dynamic>(sk::mpi::Environment::size()), sk::Communicator(world), {},
               world.streams()),
          layer(rank, "layer", {{"w", {64}}}) {}
};
std::optional<Globals> globals;

void step(bool exits) {
    const auto window = globals->layer.unshard();
    if (exits) {
        std::puts("so far so good");
        std::exit(1);
    }
}
/// With objects of its own in place of run(): rank 1 may exit in the middle of a step, under a window.
int c_like(std::string_view how, bool overlap) {
    if (how == "exit_in_main") {
        const Globals in_main(overlap);
        if (in_main.world.world_group().rank == culprit) { std::exit(1); }
        std::this_thread::sleep_for(std::chrono::seconds(40));
        return EXIT_SUCCESS;
    }
    globals.emplace(overlap);
    const bool mine = globals->rank.rank() == culprit;
    for (int i = 0; i < 3; ++i) { step(false); }
    if (how == "exit_outside" && mine) { std::exit(1); }
    for (int i = 0; i < 3; ++i) { step(how == "exit_in_a_window" && mine); }
    if (how == "no_finish") { return EXIT_SUCCESS; }
    globals->world.finish();
    return EXIT_SUCCESS;
}

}  // namespace

/// Stands between the engine and MPI.
extern "C" int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
    if (dies_in_split) { std::raise(SIGKILL); }
    return PMPI_Comm_split(comm, color, key, made);
}

int main(int count, char** arguments) {
    const std::string_view how = count > 1 ? arguments[1] : "";
    if (how == "uncaught") {
        const sk::mpi::Environment mpi;
        sk::mpi::run(sk::DeviceMesh<sk::dynamic>(mpi.size() + 1), [](auto&) {});
    }
    const auto given = [&](std::string_view word) {
        return std::find(arguments + std::min(count, 2), arguments + count, word) != arguments + count;
    };
    const bool overlap = given("overlap");
    std::string record;  // "record=PREFIX"
    for (int i = 2; i < count; ++i) {
        if (std::string_view(arguments[i]).starts_with("record=")) { record = arguments[i] + 7; }
    }
    const bool in_short = how == "late_to_world" || how == "late_to_finish" || how == "evaluation";
    try {
        const auto run = [&](std::size_t ranks) {
            sk::mpi::run(
                sk::DeviceMesh<sk::dynamic>(ranks), [&](auto& rank) { go_wrong(rank, how); }, {},
                {.overlap = overlap,
                 .shared_memory = !given("messages"),
                 .ranks_per_host = how == "hide" ? std::size_t{2} : std::size_t{given("hosts") ? 1U : 0U},
                 .compare_calls = given("each_step") ? sk::CompareCalls::each_step : sk::CompareCalls::each_call,
                 .timeout = in_short ? of_a_world : patient,
                 .on_late = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); },
                 .record = record});
        };
        if (how == "no_environment") {
            run(1);
            return EXIT_SUCCESS;
        }
        if (how == "plain_init") {
            lend();
            return EXIT_SUCCESS;
        }
        for (const std::string_view each :
             {"globals", "exit_in_main", "exit_outside", "exit_in_a_window", "no_finish"}) {
            if (how == each) { return c_like(how, overlap); }
        }
        const sk::mpi::Environment mpi(how == "low_level"  ? ThreadLevel::single
                                       : given("multiple") ? ThreadLevel::multiple
                                                           : ThreadLevel::serialized,
                                       how == "kill_at_mpis_end" ? of_a_world : patient);
        try {
            if (how == "second_environment") { const sk::mpi::Environment again; }
            if (how == "late_to_world" && mpi.rank() == culprit) { std::this_thread::sleep_for(after_a_world); }
            run(mpi.size() + (how == "mesh" ? 1 : 0));
            if (how == "kill_at_mpis_end" && mpi.rank() == culprit) { std::raise(SIGKILL); }
            return EXIT_SUCCESS;
        } catch (const std::exception& error) {
            // Before MPI's end: a launcher may end the job when the first rank has returned its status.
            std::fprintf(stderr, "rank %zu caught: %s\n", mpi.rank(), error.what());
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
        }
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "caught: %s\n", error.what());
        return 2;
    }
}
