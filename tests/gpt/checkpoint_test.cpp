// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <shardkit/checkpoint/safetensors_file.hpp>

#include "../../examples/common/input_error.hpp"
#include "../../examples/train_gpt/program/command_line.hpp"
#include "../../examples/train_gpt/program/job.hpp"
#include "../../examples/train_gpt/program/plan_summary.hpp"
#include "../../examples/train_gpt/program/start.hpp"
#include "golden_text.hpp"
#include "temporary_folder.hpp"
#include "trainings.hpp"

using namespace train_gpt;

namespace checkpoint_test {

namespace {

namespace fs = std::filesystem;
using temporary_folder::Folder;

const std::vector<Token> text = test::make_text(500);

Options small() {
    Options options;
    options.model = {8, 2, 8, 2, HeadKind::tied};
    options.batch = 6;
    options.steps = 6;
    return options;
}

/// As the program does it.
Job job_of(const Options& options) {
    validate(options);
    Job job{options, text};
    job.identity = identity_of(options, text);
    job.start = find_start(options, job.identity);
    return job;
}
test::Trained run(const Options& options) { return test::trained(job_of(options)); }

void require_same_end(const test::Trained& whole, const test::Trained& resumed, std::size_t first_step) {
    REQUIRE(resumed.losses.size() == whole.losses.size() - first_step);
    const auto behind = static_cast<std::ptrdiff_t>(first_step);
    CHECK(std::equal(resumed.losses.begin(), resumed.losses.end(), whole.losses.begin() + behind));
    CHECK(std::equal(resumed.grad_norms.begin(), resumed.grad_norms.end(), whole.grad_norms.begin() + behind));
    REQUIRE(resumed.parameters.size() == whole.parameters.size());
    for (std::size_t p = 0; p < whole.parameters.size(); ++p) {
        CAPTURE(whole.parameters[p].name);
        CHECK(resumed.parameters[p].values == whole.parameters[p].values);
    }
}

/// Why a run cannot begin.
std::string refusal(const Options& options) {
    try {
        find_start(options, identity_of(options, text));
    } catch (const program::InputError& error) { return error.what(); }
    return "no error";
}

struct Ranks {
    program::MeshExtents mesh;
    program::PolicyChoice policy;
};

/// GPT-2 as transformers has saved it, and that model's loss.
struct Golden {
    std::string file = std::string(SHARDKIT_GOLDEN_DIR) + "/gpt2.safetensors";
    double loss;
    Options options;
};
Golden golden() {
    const auto content = nlohmann::json::parse(std::ifstream(std::string(SHARDKIT_GOLDEN_DIR) + "/gpt2.json"));
    const auto& config = content.at("config");
    REQUIRE(config.at("text_bytes") == text.size());
    Golden made{.loss = content.at("loss"), .options = {}};
    made.options.model = {config.at("sequence"), config.at("layers"), config.at("width"), config.at("heads"),
                          HeadKind::tied};
    made.options.batch = config.at("batch");
    made.options.seed = config.at("seed");
    made.options.steps = 1;
    made.options.init = made.file;
    made.options.names = NameKind::gpt2;
    return made;
}

struct Tensor {
    std::string name;
    std::vector<std::size_t> shape;
    std::vector<float> values;
};
std::vector<Tensor> read_all(const std::string& path) {
    const sk::safetensors::File file(path);
    std::vector<Tensor> all;
    for (const auto& tensor : file.tensors()) {
        const auto& extents = tensor.shape.extents;
        all.push_back(
            {tensor.name, {extents.begin(), extents.begin() + tensor.shape.rank}, file.read<float>(tensor.name)});
    }
    return all;
}
void write_all(const std::string& path, const std::vector<Tensor>& tensors) {
    auto header = nlohmann::json::object();
    std::string data;
    for (const Tensor& tensor : tensors) {
        const std::size_t begin = data.size();
        data.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float));
        header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string said = header.dump();
    std::uint64_t length = said.size();
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    std::ofstream(path, std::ios::binary) << bytes << said << data;
}

}  // namespace

TEST_SUITE("gpt.checkpoint") {
    TEST_CASE("a resumed run goes on with the bits of the unbroken one, under every policy") {
        using enum program::PolicyKind;
        const Folder folder;
        for (const Ranks& ranks : {Ranks{{1, 1, 1}, {no_shard}}, Ranks{{3, 1, 1}, {no_shard}},
                                   Ranks{{3, 1, 1}, {shard_optimizer}}, Ranks{{3, 1, 1}, {shard_grad_op}},
                                   Ranks{{2, 1, 2}, {full_shard}}, Ranks{{2, 2, 1}, {hybrid_shard, 2}}}) {
            CAPTURE(ranks.mesh.describe());
            CAPTURE(ranks.policy.text());
            Options options = small();
            options.mesh = ranks.mesh;
            options.policy = ranks.policy;
            const test::Trained whole = run(options);
            options.save = folder.file(ranks.policy.text() + ranks.mesh.describe());
            options.save_every = 3;
            const test::Trained saved = run(options);
            require_same_end(whole, saved, 0);
            CHECK(saved.saved == options.save + "/step-00000006");
            Options resumed = options;
            resumed.save.clear();
            resumed.resume = options.save + "/step-00000003";
            require_same_end(whole, run(resumed), 3);
        }
    }

    TEST_CASE("runs that follow schedules, another one or none, go on with each other's bits") {
        using enum program::PolicyKind;
        using Kind = ScheduleChoice::Kind;
        const Folder folder;
        const auto follow = [](Options options, ScheduleChoice schedule) {
            options.schedule = schedule;
            Job job = job_of(options);
            job.chosen = make_plan(options).chosen;
            // Where nothing is released, nothing can stay gathered.
            const bool releases = options.policy.kind != shard_grad_op;
            CHECK(job.chosen.schedule.has_value() ==
                  (schedule.kind == Kind::prefetch || (schedule.kind == Kind::automatic && releases)));
            return test::trained(job);
        };
        for (const Ranks& ranks : {Ranks{{3, 1, 1}, {shard_grad_op}}, Ranks{{2, 1, 2}, {full_shard}},
                                   Ranks{{2, 2, 1}, {hybrid_shard, 2}}}) {
            CAPTURE(ranks.policy.text());
            Options options = small();
            options.mesh = ranks.mesh;
            options.policy = ranks.policy;
            const test::Trained whole = run(options);
            options.save = folder.file(ranks.policy.text());
            options.save_every = 3;
            require_same_end(whole, follow(options, {Kind::prefetch, 1}), 0);
            Options resumed = options;
            resumed.save.clear();
            resumed.resume = options.save + "/step-00000003";
            for (const ScheduleChoice schedule :
                 {ScheduleChoice{Kind::prefetch, 1}, {Kind::automatic, 0}, {Kind::none, 0}}) {
                CAPTURE(schedule.text());
                require_same_end(whole, follow(resumed, schedule), 3);
            }
        }
    }

    TEST_CASE("policies that compute the same bits resume each other; the newest step is found; names may change") {
        using enum program::PolicyKind;
        const Folder folder;
        constexpr std::array policies{no_shard, shard_optimizer, shard_grad_op, full_shard};
        for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::lion}) {
            Options options = small();
            options.mesh = {3, 1, 1};
            options.optimizer = optimizer;
            const test::Trained whole = run(options);
            options.save = folder.file(std::string(optimizer_names[static_cast<std::size_t>(optimizer)]));
            options.save_every = 1;
            options.keep = 2;
            options.resume = options.save;  // a new run, as nothing is there yet
            for (std::size_t p = 0; p < policies.size(); ++p) {
                options.policy = {policies[p]};
                options.steps = p + 3;
                options.names = p % 2 == 0 ? NameKind::gpt2 : NameKind::shardkit;
                const Job job = job_of(options);
                CHECK(job.start.first_step == (p == 0 ? 0 : p + 2));
                const test::Trained results = test::trained(job);
                CHECK(results.losses.back() == whole.losses[p + 2]);
                if (p + 1 == policies.size()) { require_same_end(whole, results, 5); }
            }
            std::vector<std::string> kept;
            for (const auto& entry : fs::directory_iterator(options.save)) {
                kept.push_back(entry.path().filename().string());
            }
            std::sort(kept.begin(), kept.end());
            CHECK(kept == std::vector<std::string>{"step-00000005", "step-00000006"});
        }
    }

    TEST_CASE("a signal to any rank ends all after one step, saved; nothing is left to do behind the last") {
        const Folder folder;
        Options options = small();
        options.mesh = {2, 2, 1};
        options.sample = 5;
        const test::Trained whole = run(options);
        options.save = folder.file("run");
        Job job = job_of(options);
        std::atomic<int> asked{0};
        // Four ranks ask after each step: the last of them in the third step is told, alone.
        job.signal = [&] { return ++asked == 12 ? 15 : 0; };
        const test::Trained stopped = test::trained(job);
        CHECK(stopped.signal == 15);
        CHECK(stopped.losses.size() == 3);
        CHECK(stopped.grad_norms.size() == 3);
        CHECK(stopped.saved == options.save + "/step-00000003");
        CHECK(stopped.sample.empty());
        options.resume = options.save;
        require_same_end(whole, run(options), 3);
        const test::Trained none = run(options);
        CHECK(none.losses.empty());
        CHECK(none.saved.empty());
        CHECK(none.sample == whole.sample);
    }

    TEST_CASE("what would make another run of a resumed one is refused with both values") {
        const Folder folder;
        Options saved = small();
        saved.steps = 2;
        saved.save = folder.file("run");
        run(saved);
        saved.save.clear();
        saved.resume = folder.file("run");
        const auto with = [&](auto change) {
            Options changed = saved;
            change(changed);
            return refusal(changed);
        };
        CHECK(with([](Options&) {}) == "no error");
        const std::string what = "--resume '" + saved.resume + "/step-00000002': saved ";
        const auto by = [&](const std::string& theirs, const std::string& ours) {
            return what + "by a run with " + theirs + ", this one has " + ours + ": expected the same";
        };
        CHECK(with([](Options& o) { o.seed = 9; }) == by("--seed 1", "--seed 9"));
        CHECK(with([](Options& o) { o.model.width = 16; }) == by("--width 8", "--width 16"));
        CHECK(with([](Options& o) { o.model.layers = 1; }) == by("--layers 2", "--layers 1"));
        CHECK(with([](Options& o) { o.model.heads = 4; }) == by("--heads 2", "--heads 4"));
        CHECK(with([](Options& o) { o.model.head = HeadKind::untied; }) == by("--head tied", "--head untied"));
        CHECK(with([](Options& o) { o.model.sequence = 4; }) == by("--sequence 8", "--sequence 4"));
        CHECK(with([](Options& o) { o.batch = 12; }) == by("--batch 6", "--batch 12"));
        CHECK(with([](Options& o) { o.dtype = Dtype::bf16; }) == by("--dtype fp32", "--dtype bf16"));
        CHECK(with([](Options& o) { o.optimizer = OptimizerKind::lion; }) ==
              by("--optimizer adamw", "--optimizer lion"));
        CHECK(with([](Options& o) { o.learning_rate = 0.3; }) == by("--lr 0.001", "--lr 0.3"));
        CHECK(with([](Options& o) { o.weight_decay = 0; }) == by("--weight-decay 0.01", "--weight-decay 0"));
        CHECK(with([](Options& o) { o.clip = 2.5; }) == by("--clip 1", "--clip 2.5"));
        CHECK(with([](Options& o) { o.steps = 1; }) ==
              what + "after step 2, this run has --steps 1: expected at least as many");
        const std::vector<Token> longer = test::make_text(501);
        CHECK_THROWS_WITH_AS(find_start(saved, identity_of(saved, longer)),
                             doctest::Contains("this one has --text of 501 bytes with hash "), program::InputError);
        saved.resume = folder.file("missing");
        CHECK(refusal(saved) == "--resume '" + saved.resume + "': expected a folder, there is none");
        fs::create_directory(saved.resume);
        CHECK(refusal(saved) == "--resume '" + saved.resume +
                                    "': expected a folder with a step that was saved to its end, or one step's");
        saved.resume.clear();
        saved.save = folder.file("run");
        CHECK(refusal(saved) == "--save '" + saved.save + "': expected a folder without step 2, or --resume");
    }

    TEST_CASE("GPT-2 of transformers has the loss that transformers computes, on every mesh") {
        using enum program::PolicyKind;
        const Golden given = golden();
        for (const Ranks& ranks :
             {Ranks{{1, 1, 1}, {no_shard}}, Ranks{{3, 1, 1}, {full_shard}}, Ranks{{1, 2, 2}, {shard_grad_op}}}) {
            CAPTURE(ranks.mesh.describe());
            Options options = given.options;
            options.mesh = ranks.mesh;
            options.policy = ranks.policy;
            const double loss = run(options).losses.at(0);
            CHECK(loss == doctest::Approx(given.loss).epsilon(1e-6));
        }
    }

    TEST_CASE("a padded vocabulary is saved without its padding, under both names, and resumed") {
        const Folder folder;
        for (const NameKind names : {NameKind::shardkit, NameKind::gpt2}) {
            Options options = small();
            options.model.vocabulary = 250;
            options.model.head = HeadKind::untied;
            options.mesh = {1, 2, 1};
            const test::Trained whole = run(options);
            options.names = names;
            options.save = folder.file(std::string(name_kinds[static_cast<std::size_t>(names)]));
            options.save_every = 3;
            require_same_end(whole, run(options), 0);
            std::size_t of_tokens = 0;
            for (const Tensor& tensor : read_all(options.save + "/step-00000003/model.safetensors")) {
                CHECK(tensor.shape.front() != 256);
                of_tokens += tensor.shape.front() == 250;
            }
            CHECK(of_tokens == 2);
            Options resumed = options;
            resumed.save.clear();
            resumed.resume = options.save + "/step-00000003";
            require_same_end(whole, run(resumed), 3);
            resumed.model.vocabulary = 251;
            CHECK(refusal(resumed).find("--vocabulary 250") != std::string::npos);
        }
    }

    TEST_CASE("GPT-2 is saved as it came, whether its names have their prefix or not, and masks are passed over") {
        const Folder folder;
        const Golden given = golden();
        std::vector<Tensor> plain = read_all(given.file);
        for (Tensor& tensor : plain) { tensor.name.erase(0, gpt2_prefix.size()); }
        const auto wte =
            std::find_if(plain.begin(), plain.end(), [](const Tensor& t) { return t.name == "wte.weight"; });
        REQUIRE(wte != plain.end());
        Tensor head{std::string(gpt2_head), wte->shape, wte->values};
        plain.push_back({"h.0.attn.bias", {1, 1, 8, 8}, std::vector<float>(64, 1.0F)});
        plain.push_back({"h.1.attn.masked_bias", {}, {-1e4F}});
        plain.push_back(head);
        Options options = given.options;
        options.init = folder.file("plain.safetensors");
        write_all(options.init, plain);
        options.learning_rate = 0;
        options.mesh = {1, 2, 1};
        options.save = folder.file("run");
        CHECK(run(options).losses.at(0) == doctest::Approx(given.loss).epsilon(1e-6));
        std::vector<Tensor> back = read_all(options.save + "/step-00000001/model.safetensors");
        std::vector<Tensor> before = read_all(given.file);
        const auto by_name = [](const Tensor& a, const Tensor& b) { return a.name < b.name; };
        std::sort(back.begin(), back.end(), by_name);
        std::sort(before.begin(), before.end(), by_name);
        REQUIRE(back.size() == before.size());
        for (std::size_t t = 0; t < back.size(); ++t) {
            CAPTURE(before[t].name);
            CHECK(back[t].name == before[t].name);
            CHECK(back[t].shape == before[t].shape);
            CHECK(back[t].values == before[t].values);
        }

        options.save.clear();
        plain.back().values.assign(head.values.size(), 0.5F);
        write_all(options.init, plain);
        CHECK(refusal(options) ==
              "--init '" + options.init +
                  "': 'lm_head.weight' has other values than 'wte.weight': expected --head untied");
        plain.pop_back();
        write_all(options.init, plain);
        options.model.layers = 1;
        CHECK(refusal(options).find(" has besides 'h.1.attn.c_attn.bias', ") != std::string::npos);
        options.model.layers = 3;
        CHECK(refusal(options).find(" has no 'h.2.ln_1.weight', ") != std::string::npos);
        options.model.layers = 2;
        std::ofstream(folder.file("config.json")) << R"({"n_head": 4})";
        CHECK(refusal(options) == "--init: '" + folder.file("config.json") +
                                      "' says n_head 4, this run has --heads 2: expected the same");
    }
}

}  // namespace checkpoint_test
