// SPDX-License-Identifier: Apache-2.0
// A trainer that is compiled in both forms and must print the same: policies, precisions, optimizers, formats of
// states and verbs of a step, as hashes of all bits that they make.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint.hpp>
#include <shardkit/local_shards.hpp>
#include <shardkit/moving_average.hpp>
#include <shardkit/muon.hpp>
#include <shardkit/plan.hpp>
#include <shardkit/reshard.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>
#include <shardkit/verify.hpp>

#ifdef TRAINS_ON_NCCL
#include <thread>

#include <shardkit/nccl.hpp>
#ifndef SHARDKIT_COMPILED
#include "unit/backend/nccl/host_functions.hpp"
#endif
#include "device_products.hpp"
#endif

namespace sk = shardkit;

namespace {

using Rank = sk::Rank;

/// Runs f(rank) for every rank of the mesh, on threads, or on as many GPUs of the stand-in.
template <class Mesh, class F>
void run(std::string_view engine, Mesh mesh, const F& f) {
    if (engine == "threads") { return sk::threads::run(mesh, f); }
#ifdef TRAINS_ON_NCCL
    if (engine == "nccl") {
        const auto id = sk::nccl::UniqueId::create();
        std::vector<std::jthread> ranks;
        for (std::size_t r = 0; r < mesh.size(); ++r) {
            ranks.emplace_back([&, r] {
                sk::nccl::Options options;
                options.device = static_cast<int>(r);
                options.sums = sk::nccl::Sums::exchanged;  // the bits of threads
                sk::nccl::World world(id, mesh.size(), r, options);
                sk::nccl::run(mesh, world, f);
            });
        }
        return;
    }
#endif
    throw std::invalid_argument("this trainer has no engine " + std::string(engine));
}

/// Muon with the library's products on threads, and with the code base's over NCCL.
template <class Model>
auto make_muon([[maybe_unused]] std::string_view engine, const Model& model, const sk::MuonOptions& options,
               const sk::AdamWOptions& rest) {
    using Muon = sk::Muon;
#ifdef TRAINS_ON_NCCL
    if (engine == "nccl") { return std::make_unique<Muon>(model, code_base::DeviceProducts{}, options, rest); }
#endif
    return std::make_unique<Muon>(model, options, rest);
}

template <class E>
struct Weight : sk::Param<"weight", E, 13, 7> {};
template <class E>
struct Bias : sk::Param<"bias", E, 13> {};
template <class E>
struct Fixed : sk::Param<"fixed", E, 5>, sk::Frozen {};

/// Of all numbers in order.
class Hash {
  public:
    void add(std::uint64_t bits) {
        for (int byte = 0; byte < 8; ++byte) { hash_ = (hash_ ^ (bits >> (8 * byte) & 0xff)) * 0x100000001b3ULL; }
    }
    void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }
    void add(std::string_view text) {
        for (const char c : text) { add(static_cast<std::uint64_t>(c)); }
    }
    std::uint64_t value() const { return hash_; }

  private:
    std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

/// A number from -1 to 1 that any element type has and no library computes.
double number(std::uint64_t i, std::uint64_t salt) {
    return static_cast<double>((i * 37 + salt * 101 + 11) % 257) / 128 - 1;
}

struct Job {
    std::string_view optimizer;
    int microbatches = 1;
    double max_norm = sk::unlimited;
    bool scaled = false;
    bool in_backward = false;
    bool reduced = false;  // reduce, global_norm and clip one by one
    bool saved = false;    // saved after two steps, and loaded into another
};

/// Where it trains, and saves.
struct Place {
    std::string_view engine;
    std::string folder;
};

template <class Model>
std::unique_ptr<sk::Optimizer> make_optimizer(std::string_view engine, const Model& model, std::string_view name) {
    using sk::StateFormat;
    const std::vector<sk::ParamGroup> groups{{.matches = [](auto, auto parameter) { return parameter == "bias"; },
                                              .learning_rate_scale = 0.5,
                                              .weight_decay = 0}};
    const sk::AdamWOptions adamw{.learning_rate = 0.125};
    const sk::LionOptions lion{.learning_rate = 0.0625, .weight_decay = 0.25};
    const sk::SgdOptions sgd{
        .learning_rate = 0.25, .rule = sk::Momentum::nesterov, .momentum = 0.5, .weight_decay = 0.125};
    if (name == "adamw") { return std::make_unique<sk::AdamW>(model, adamw, groups); }
    if (name == "amsgrad") { return std::make_unique<sk::AMSGrad>(model, adamw, groups); }
    if (name == "lion") { return std::make_unique<sk::Lion>(model, lion, groups); }
    if (name == "muon") { return make_muon(engine, model, {.learning_rate = 0.0625}, adamw); }
    if (name == "sgd") { return std::make_unique<sk::SGD>(model, sgd, groups); }
    if (name == "adamw_bf16") {
        return std::make_unique<sk::AdamW>(model, sk::states_in<StateFormat::bf16>, adamw, groups);
    }
    if (name == "adamw_block8") {
        return std::make_unique<sk::AdamW>(model, sk::states_in<StateFormat::block8>, adamw, groups);
    }
    throw std::invalid_argument("no optimizer is called " + std::string(name));
}

template <class E, class Policy>
class Trainer {
    using Group = sk::Params<Weight<E>, Bias<E>, Fixed<E>>;
    using Layer = sk::Sharded<Group, Policy>;
    using Listed = sk::Sharded<sk::TensorList<E>, Policy>;
    using Model = sk::Model;

  public:
    Trainer(std::string_view engine, Rank& rank, const Job& job)
        : rank_(rank),
          job_(job),
          layers_(make_layers(rank)),
          listed_(rank, "listed", sk::TensorList<E>{{"a", {9, 3}}, {"b", {21}, {.decay = false}}}),
          model_(layers_, listed_),
          optimizer_(make_optimizer(engine, model_, job.optimizer)) {
        if (job.scaled) { loss_scale_.emplace(rank, sk::LossScaleOptions{.initial = 1024, .growth_interval = 2}); }
        for (Layer& layer : layers_) {
            layer.initialize([](std::string_view path, std::string_view name, std::uint64_t i) {
                return number(i, path.size() * 7 + name.size());
            });
        }
        listed_.initialize(sk::InitialValues::uniform(-1, 1, 7));
    }

    void step(std::uint64_t at) {
        sk::Accumulation accumulation{model_, job_.microbatches};
        if (job_.in_backward) { optimizer_->step_in_backward(accumulation); }
        const double scale = loss_scale_ ? loss_scale_->value() : 1;
        for (int m = 0; m < job_.microbatches; ++m) {
            const std::uint64_t data_rank = rank_.grid().coordinate(sk::Dp::name, rank_.rank());
            const std::uint64_t salt = (at * 31 + data_rank) * 7 + static_cast<std::uint64_t>(m);
            add(accumulation, listed_, salt + 3, scale);
            for (Layer& layer : layers_) {
                if (m == 1 && &layer == &layers_[1]) {
                    accumulation.add_zero(layer);
                    continue;
                }
                add(accumulation, layer, salt, scale);
            }
        }
        if (job_.reduced) {
            auto reduced = sk::reduce(std::move(accumulation), sk::divide_by(3));
            const auto norm = sk::global_norm(reduced);
            std::vector<double> gradient(91);
            reduced.read_full(layers_[0], Weight<E>{}, gradient);
            for (const double g : gradient) { hash_.add(g); }
            hash_.add(norm.value());
            optimizer_->step(std::move(reduced), sk::clip(norm, job_.max_norm));
            return;
        }
        sk::StepOptions options{.divisor = sk::mean, .max_norm = job_.max_norm};
        if (loss_scale_) { options.loss_scale = &*loss_scale_; }
        const auto norm = optimizer_->step(std::move(accumulation), options);
        if (!job_.in_backward) { hash_.add(norm.value()); }
        if (loss_scale_) { hash_.add(loss_scale_->value()); }
    }

    auto state() {
        sk::checkpoint::State all{model_, *optimizer_};
        if (loss_scale_) { all.add(*loss_scale_); }
        return all;
    }
    Trainer& hash_as(Hash& hash) {
        std::vector<float> values(91);
        for (Layer& layer : layers_) {
            layer.read_full(Weight<E>{}, values);
            for (const float v : values) { hash.add(static_cast<double>(v)); }
            hash.add(optimizer_->steps(layer));
        }
        {
            const auto full = sk::summon_full_params(model_);
            const auto window = listed_.unshard(sk::Gathers::never);
            await_device();
            for (const E v : window.view("b")) { hash.add(static_cast<double>(static_cast<float>(v))); }
        }
        const auto window = layers_[0].unshard();
        await_device();
        for (const E v : window[Fixed<E>{}]) { hash.add(static_cast<double>(static_cast<float>(v))); }
        hash.add(hash_.value());
        return *this;
    }
    sk::Optimizer& optimizer() { return *optimizer_; }

  private:
    static std::vector<Layer> make_layers(Rank& rank) {
        std::vector<Layer> made;
        for (int l = 0; l < 3; ++l) { made.emplace_back(rank, "layers." + std::to_string(l)); }
        return made;
    }
    /// The stand-in's memory of a GPU is the host's, once its stream has come there.
    void await_device() const { rank_.compute_stream().synchronize(); }
    template <class L>
    void add(sk::Accumulation& accumulation, L& layer, std::uint64_t salt, double scale) {
        auto gradients = accumulation.gradients(layer);
        await_device();
        for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
            std::uint64_t i = 0;
            for (auto& g : gradients.view(p)) {
                g = static_cast<E>(static_cast<float>(g) + static_cast<float>(number(i++, salt + p) * scale));
            }
        }
        accumulation.add(std::move(gradients));
    }

    Rank& rank_;
    Job job_;
    std::vector<Layer> layers_;
    Listed listed_;
    Model model_;
    std::unique_ptr<sk::Optimizer> optimizer_;
    std::optional<sk::LossScale> loss_scale_;
    Hash hash_;
};

/// Trains for four steps on every mesh, and prints the hash of what each of its ranks ends with.
template <class E, class Policy, class Mesh>
void train(const char* element, const char* policy, Mesh mesh, const Job& job, const Place& place) {
    std::vector<std::uint64_t> hashes(mesh.size());
    run(place.engine, mesh, [&](Rank& rank) {
        Trainer<E, Policy> trainer(place.engine, rank, job);
        for (std::uint64_t at = 0; at < 2; ++at) { trainer.step(at); }
        Hash hash;
        trainer.optimizer().set_learning_rate_factor(0.5);
        if (job.saved) {
            sk::checkpoint::save(rank, place.folder, 2, trainer.state(), {.replace = true});
            Trainer<E, Policy> other(place.engine, rank, job);
            sk::checkpoint::load(rank, sk::checkpoint::latest(rank, place.folder)->path, other.state());
            other.optimizer().set_learning_rate_factor(0.5);
            for (std::uint64_t at = 2; at < 4; ++at) { other.step(at); }
            other.hash_as(hash);
        }
        for (std::uint64_t at = 2; at < 4; ++at) { trainer.step(at); }
        trainer.hash_as(hash);
        hashes[rank.rank()] = hash.value();
    });
    std::printf("%s %s %.*s%s%s%s%s on %zu:", element, policy, static_cast<int>(job.optimizer.size()),
                job.optimizer.data(), job.scaled ? " scaled" : "", job.in_backward ? " in_backward" : "",
                job.reduced ? " reduced" : "", job.saved ? " saved" : "", static_cast<std::size_t>(mesh.size()));
    for (const std::uint64_t hash : hashes) { std::printf(" %016llx", static_cast<unsigned long long>(hash)); }
    std::printf("\n");
}

/// A Muon's part is not exchanged for another optimizer, which the Muon would not know: its next step refuses it.
template <class Muon>
void expect_no_exchange(Muon& muon, const sk::Model& model) {
    muon.rest() = sk::AdamW{model};
    try {
        sk::Accumulation accumulation{model};
        muon.step(std::move(accumulation));
    } catch (const sk::UsageError& error) {
        if (std::string_view(error.what()).find("part 1 was moved from or assigned to") != std::string_view::npos) {
            return;
        }
    }
    throw std::runtime_error("an optimizer took the place of a Muon's");
}

#if defined(TRAINS_ON_NCCL) && defined(SHARDKIT_COMPILED)
/// Without products for its memory a Muon over NCCL is refused: the host's would read a GPU's.
template <class Model>
void expect_no_products(const Model& model) {
    try {
        const sk::Muon refused{model};
    } catch (const sk::UsageError& error) {
        if (std::string_view(error.what()).find("Muon without a library of products on the engine nccl") !=
            std::string_view::npos) {
            return;
        }
    }
    throw std::runtime_error("a Muon without products was made over NCCL");
}
#endif

void print(const char* what, const char* policy, const std::vector<std::uint64_t>& hashes) {
    std::printf("%s %s on %zu:", what, policy, hashes.size());
    for (const std::uint64_t hash : hashes) { std::printf(" %016llx", static_cast<unsigned long long>(hash)); }
    std::printf("\n");
}

/// A step that is recorded and followed, with all that has a header of its own: averages, checks, plans, shards.
template <class Policy, class Mesh>
void train_with_parts(const char* policy, Mesh mesh, const Place& place) {
    using Layer = sk::Sharded<sk::Params<Weight<float>, Bias<float>>, Policy>;
    std::vector<std::uint64_t> hashes(mesh.size());
    std::vector<std::uint64_t> of_reports(mesh.size());  // of what engines have of their own: bytes and calls
    run(place.engine, mesh, [&](Rank& rank) {
        Hash hash;
        Hash reports;
        // The stand-in's memory of a GPU is the host's, once its stream has come there.
        const auto await_device = [&] { rank.compute_stream().synchronize(); };
        Layer layer{rank, "layer"};
        Layer averaged{rank, "average", {}, {.frozen = Layer::Group::all()}};
        layer.initialize([](auto path, auto name, std::uint64_t i) { return number(i, path.size() + name.size()); });
        const sk::Model model{layer};
        const auto made = make_muon(place.engine, model, {.learning_rate = 0.25}, {.learning_rate = 0.125});
        auto& muon = *made;
#if defined(TRAINS_ON_NCCL) && defined(SHARDKIT_COMPILED)
        if (place.engine == "nccl") { expect_no_products(model); }
#endif
        muon.rest().set_learning_rate(0.0625);
        hash.add(muon.rest().options().learning_rate + muon.matrices().given_learning_rate());
        sk::MovingAverage average{sk::Model{averaged}, model};
        const auto step = [&](std::uint64_t at) {
            sk::Accumulation accumulation{model};
            {
                const auto window = layer.unshard();
                await_device();
                hash.add(static_cast<double>(window[Bias<float>{}][0]));
            }
            auto gradients = accumulation.gradients(layer);
            await_device();
            for (std::size_t p = 0; p < 2; ++p) {
                std::uint64_t i = 0;
                for (float& g : gradients.view(p)) { g += static_cast<float>(number(i++, at + p)); }
            }
            accumulation.add(std::move(gradients));
            auto reduced = sk::reduce(std::move(accumulation), sk::mean);
            for (const sk::GradientNorm& norm : sk::gradient_norms(reduced).parameters) { hash.add(norm.two); }
            for (const sk::ValuesHash& one : sk::hash_values(reduced)) { hash.add(one.hash); }
            const auto shard = sk::gradient_shard(reduced, layer);
            await_device();
            sk::read_shards(layer, [&](sk::ShardRun<const float> run) {
                for (const float g : shard.of(run)) { hash.add(static_cast<double>(g) * shard.scale()); }
                for (const float value : run.values) { hash.add(static_cast<double>(value)); }
            });
            muon.step(std::move(reduced));
            average.update(0.75);
        };
        for (std::uint64_t at = 0; at < 2; ++at) { step(at); }
        await_device();
        sk::update_shards(layer, [](sk::ShardRun<float> run) {
            if (run.name != "bias") { return; }
            for (float& value : run.values) { value *= 0.5F; }
        });
        sk::verify_replicas(model, muon);
        for (const sk::ValuesHash& one : sk::hash_values(muon)) { hash.add(one.hash); }
        for (const sk::ValuesHash& one : sk::hash_values(sk::Model{layer, averaged})) { hash.add(one.hash); }
        hash.add(sk::model_summary(model, muon));
        reports.add(sk::plan(model, muon).memory.total().value);
        reports.add(sk::traffic_table(rank.traffic()));
        expect_no_exchange(muon, model);

        sk::AdamW adamw{model, {.learning_rate = 0.125}};
        const auto plain = [&](std::uint64_t at) {
            sk::Accumulation accumulation{model};
            auto gradients = [&] {
                const auto window = layer.unshard();
                return accumulation.gradients(layer);
            }();
            await_device();
            for (float& g : gradients[Weight<float>{}]) { g += static_cast<float>(number(at, 3)); }
            accumulation.add(std::move(gradients));
            hash.add(adamw.step(std::move(accumulation), {.max_norm = 0.5}).value());
        };
        const sk::Schedule schedule = sk::schedule::record(model, [&] { plain(7); });
        hash.add(static_cast<std::uint64_t>(schedule.size()));
        auto following = sk::schedule::follow(model, schedule);
        hash.add(static_cast<std::uint64_t>(following.schedules()));
        plain(8);
        for (const sk::ValuesHash& one : sk::hash_values(model)) { hash.add(one.hash); }
        Layer twin{rank, "layer"};
        const sk::Model other{twin};
        sk::reshard(rank, sk::checkpoint::State{model}, other);
        for (const sk::ValuesHash& one : sk::hash_values(other)) { hash.add(one.hash); }
        hash.add(sk::ReshardSide(other).version());
        hashes[rank.rank()] = hash.value();
        of_reports[rank.rank()] = reports.value();
    });
    print("parts", policy, hashes);
    print("reports", policy, of_reports);
}

template <class E, class Policy>
void train_on_meshes(const char* element, const char* policy, const Job& job, const Place& place) {
    train<E, Policy>(element, policy, sk::DeviceMesh<1>{}, job, place);
    train<E, Policy>(element, policy, sk::DeviceMesh<3, 1, 1>{}, job, place);
    train<E, Policy>(element, policy, sk::DeviceMesh<2, 2, 1>{}, job, place);
}

}  // namespace

int main(int count, char** given) {
    if (count != 3) { return EXIT_FAILURE; }
    const Place place{given[1], given[2]};
    std::filesystem::create_directories(place.folder);
    constexpr double clipped = 0.75;
    for (const std::string_view optimizer : {"adamw", "amsgrad", "lion", "sgd"}) {
        train_on_meshes<float, sk::FullShard>("fp32", "full_shard", {optimizer, 2, clipped}, place);
        train_on_meshes<double, sk::FullShard>("fp64", "full_shard", {optimizer, 2, clipped}, place);
        train_on_meshes<sk::bf16, sk::FullShard>("bf16", "full_shard", {optimizer, 2, clipped}, place);
    }
    for (const std::string_view optimizer : {"adamw_bf16", "adamw_block8"}) {
        train_on_meshes<float, sk::FullShard>("fp32", "full_shard",
                                              {optimizer, 1, clipped, false, false, false, true}, place);
    }
    const std::string_view adamw = "adamw";
    train_on_meshes<float, sk::NoShard>("fp32", "no_shard", {adamw, 2, clipped, false, false, true}, place);
    train_on_meshes<float, sk::ShardOptimizer>("fp32", "shard_optimizer", {adamw, 2, sk::unlimited, false, true},
                                               place);
    train_on_meshes<float, sk::ShardGradOp>("fp32", "shard_grad_op", {adamw, 1, clipped, false, false, true, true},
                                            place);
    train_on_meshes<sk::fp16, sk::FullShard>("fp16", "full_shard", {adamw, 2, clipped, true, false, false, true},
                                             place);
    train<float, sk::HybridShard<2>>("fp32", "hybrid_shard", sk::DeviceMesh<4>{}, {adamw, 2, clipped}, place);
    const std::string_view muon = "muon";
    train_on_meshes<float, sk::FullShard>("fp32", "full_shard", {muon, 2, clipped, false, false, false, true}, place);
    train_on_meshes<sk::bf16, sk::FullShard>("bf16", "full_shard", {muon, 2, clipped}, place);
    train_with_parts<sk::FullShard>("full_shard", sk::DeviceMesh<1>{}, place);
    train_with_parts<sk::FullShard>("full_shard", sk::DeviceMesh<3>{}, place);
    train_with_parts<sk::HybridShard<2>>("hybrid_shard", sk::DeviceMesh<4>{}, place);
    train<float, sk::HybridOptimizer<2>>("fp32", "hybrid_optimizer", sk::DeviceMesh<4>{}, {adamw, 2, clipped}, place);
    train<float, sk::SecondaryShard<2>>("fp32", "secondary_shard", sk::DeviceMesh<4>{}, {adamw, 2, clipped}, place);
    return EXIT_SUCCESS;
}
