// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <shardkit/checkpoint/safetensors_file.hpp>

#include "../../examples/common/text_format.hpp"
#include "../../examples/train_gpt/device/nccl.cu"
#include "../../examples/train_gpt/program/command_line.hpp"
#include "../temporary_folder.hpp"
#include "device_training.hpp"

namespace program_test {

using namespace device_training;

namespace {

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// While it lives, what is printed to a stream goes into a file.
class Instead {
  public:
    Instead(std::FILE* stream, std::FILE* file) : stream_(stream), before_(dup(fileno(stream))) {
        std::fflush(stream_);
        dup2(fileno(file), fileno(stream_));
    }
    Instead(const Instead&) = delete;
    Instead& operator=(const Instead&) = delete;
    ~Instead() {
        std::fflush(stream_);
        dup2(before_, fileno(stream_));
        close(before_);
    }

  private:
    std::FILE* stream_;
    int before_;
};

std::string contents(std::FILE* file) {
    std::fflush(nullptr);
    std::fseek(file, 0, SEEK_END);
    std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
    std::rewind(file);
    return text.substr(0, std::fread(text.data(), 1, text.size(), file));
}

struct Ended {
    int status;
    std::string out, errors;
};
Ended started(std::vector<const char*> words) {
    gpu_ranks::restart();
    const File out(std::tmpfile());
    const File errors(std::tmpfile());
    words.insert(words.begin(), {"train_gpt", "--engine", "nccl"});
    const Instead of_out(stdout, out.get());
    const Instead of_errors(stderr, errors.get());
    const int status = run_program(static_cast<int>(words.size()), words.data());
    return {status, contents(out.get()), contents(errors.get())};
}

/// What is refused, and that nothing was printed.
std::string refused(std::vector<const char*> words, std::size_t ranks) {
    try {
        words.insert(words.begin(), {"train_gpt", "--engine", "nccl"});
        std::string help;
        static_cast<void>(parse_command_line(static_cast<int>(words.size()), words.data(), help, ranks));
    } catch (const program::InputError& error) { return error.what(); }
    return "nothing";
}

const std::string licence = std::string(SHARDKIT_GOLDEN_DIR) + "/../../LICENSE";

}  // namespace

TEST_CASE("gpt.device: the program trains and prints, the same with a graph but for the speed") {
    for (const auto& [dtype, experts] : {std::pair("fp32", "0"), {"bf16", "0"}, {"fp32", "4"}, {"bf16", "4"}}) {
        std::vector<std::string> losses;
        for (const char* const graph : {"off", "on"}) {
            std::vector<const char*> words{"--text",     licence.c_str(),
                                           "--steps",    "5",
                                           "--batch",    "4",
                                           "--sequence", "16",
                                           "--layers",   "1",
                                           "--width",    "16",
                                           "--heads",    "2",
                                           "--every",    "2",
                                           "--graph",    graph,
                                           "--experts",  experts,
                                           "--dtype",    dtype};
            if (*experts != '0') { words.insert(words.end(), {"--capacity", "24"}); }
            const Ended ended = started(words);
            CHECK(ended.errors == "");
            CHECK(ended.status == EXIT_SUCCESS);
            CHECK(ended.out.find("memory per rank, planned:\n") != std::string::npos);
            CHECK(ended.out.find(", engine nccl, ") != std::string::npos);
            const std::size_t first = ended.out.find("\nstep 1/5  loss 5.5");
            REQUIRE(first != std::string::npos);
            const std::string lines =
                std::regex_replace(ended.out.substr(first), std::regex("  [0-9,]+ tokens/s.*|speed: .*"), "");
            CHECK(std::regex_match(
                lines, std::regex("(\nstep [135]/5  loss 5\\.[0-9]{4}  norm [0-9]\\.[0-9]{3}){3}"
                                  "\npeak memory per rank: .* \\(\\+0.00 %\\)\n"
                                  "collectives per rank and step, measured .*:\n  \\(nothing: one rank\\)"
                                  "\nloss: 5\\.[0-9]{4} first, 5\\.[0-9]{4} last \\([+-]0\\.[0-9]{4}\\)\n\n")));
            losses.push_back(lines);
        }
        CHECK(losses[0] == losses[1]);
    }
}

TEST_CASE("gpt.device: a run that diverges between two reports ends with the step at which it did") {
    for (const char* const graph : {"off", "on"}) {
        const Ended ended =
            started({"--text", licence.c_str(), "--steps", "9",       "--batch", "4",       "--sequence",
                     "8",      "--layers",      "1",       "--width", "8",       "--heads", "2",
                     "--lr",   "1e30",          "--every", "8",       "--graph", graph});
        CHECK(ended.status == EXIT_FAILURE);
        CHECK(ended.errors.find("step 2: the loss is ") != std::string::npos);
        CHECK(ended.errors.find("expected finite numbers: training diverged, with --lr 1e+30") != std::string::npos);
    }
}

TEST_CASE("gpt.device: the trace of a step has the acts of its schedule, of each rank in the order of its streams") {
    Options options = test::base();
    options.dtype = Dtype::fp32;
    options.batch = 4;
    options.steps = 3;
    options.mesh = {2, 1, 1};
    options.policy = {program::PolicyKind::full_shard};
    options.schedule = {ScheduleChoice::Kind::prefetch, 1};
    const std::vector<double> untraced = train<float>(options);
    options.trace = "wanted";
    const sk::Schedule schedule = planned(options).chosen.schedule.value();
    std::vector<std::string> paths{"embedding", "blocks.0", "blocks.1", "head"};
    std::vector<sk::planner::GroupDescription> groups(paths.size());
    for (std::size_t g = 0; g < paths.size(); ++g) { groups[g].path = paths[g]; }
    std::map<int, std::vector<std::string>> expected;  // by lane
    for (const sk::schedule::Op& op : schedule.ops()) {
        const bool sum = op.act == sk::schedule::Act::norm;
        if (sk::schedule::is_of_program(op.act) && !sum) { continue; }
        expected[static_cast<int>(sum ? sk::schedule::Lane::reduce : op.lane)].push_back(describe(op, groups));
    }
    std::string text;
    gpu_ranks::restart();
    CHECK(paced_ranks::run(sk::DeviceMesh(2, 1, 1), paced_ranks::one_lazy[0], rank_options(planned(options).chosen),
                           [&](auto& rank, const auto&) {
                               Options with = options;
                               with.every = 1;
                               Job job{with, test::corpus()};
                               job.chosen = planned(with).chosen;
                               Results results(with.steps);
                               train_on_device<float>(rank, job, workspace_bytes, &results);
                               CHECK(results.losses == untraced);
                               CHECK(results.trace.empty() == (rank.rank() != 0));
                               if (rank.rank() == 0) { text = std::move(results.trace); }
                           }) == "");
    std::map<std::pair<int, int>, std::vector<std::string>> seen;  // by rank and lane
    std::map<std::pair<int, int>, double> ended;
    const auto trace = nlohmann::json::parse(text);
    for (const auto& event : trace.at("traceEvents")) {
        if (event.at("ph") != "X") { continue; }
        const auto name = event.at("name").get<std::string>();
        const std::pair<int, int> track{event.at("pid"), event.at("tid")};
        const double begin = event.at("ts");
        CHECK(begin >= ended[track] - 0.002);  // microseconds with three digits
        ended[track] = begin + event.at("dur").get<double>();
        if (track.second != static_cast<int>(sk::schedule::Lane::compute)) { seen[track].push_back(name); }
    }
    CHECK(seen.size() == 2 * expected.size());
    for (const auto& [track, names] : seen) { CHECK(names == expected.at(track.second)); }
}

TEST_CASE("gpt.device: a trace that is asked for is written to its file, by the rank that prints") {
    const temporary_folder::Folder folder;
    const std::string file = folder.file("trace.json"), results = folder.file("results.json");
    const std::vector<const char*> words{"--text",       licence.c_str(),
                                         "--steps",      "2",
                                         "--batch",      "4",
                                         "--model",      "124M",
                                         "--width",      "8",
                                         "--sequence",   "8",
                                         "--heads",      "2",
                                         "--layers",     "1",
                                         "--vocabulary", "256",
                                         "--schedule",   "prefetch",
                                         "--json",       results.c_str(),
                                         "--trace",      file.c_str()};
    CHECK(started(words).errors == "");
    const auto json = nlohmann::json::parse(std::ifstream(results));
    CHECK(json.at("engine") == "nccl");
    CHECK(json.at("losses").size() == 2);
    for (const double loss : json.at("losses")) { CHECK(std::abs(loss - 5.5) < 0.1); }
    CHECK(json.at("peak_bytes_per_rank") == json.at("planned_bytes_per_rank"));
    CHECK(json.at("collectives_by_axes") == json.at("planned_collectives_by_axes"));
    CHECK(json.at("timed_steps").at("steps") == 1);
    CHECK(nlohmann::json::parse(std::ifstream(file)).at("traceEvents").size() > 10);
    auto nowhere = words;
    const std::string no_folder = folder.file("none") + "/t.json";
    nowhere.back() = no_folder.c_str();
    const Ended ended = started(nowhere);
    CHECK(ended.errors.find("--trace '" + no_folder + "': expected a file that can be written") != std::string::npos);
    CHECK(ended.out.find("\nstep 1/") == std::string::npos);
}

TEST_CASE("gpt.device: the program names what it cannot use, and what it expected") {
    const Ended ended = started({"--text", "no-such-file"});
    CHECK(ended.status == 2);
    CHECK(ended.out == "");
    CHECK(ended.errors.find("--text 'no-such-file': expected a file that can be read") != std::string::npos);
    const std::string help = started({"--help"}).out;
    CHECK(help.find("\n  --graph on|off ") != std::string::npos);
    // What this engine cannot follow.
    for (const auto& [flag, value] : {std::pair("--optimizer", "lion"),
                                      {"--states", "bf16"},
                                      {"--master", "none"},
                                      {"--hashes", "h"},
                                      {"--verify-every", "1"},
                                      {"--sample", "1"},
                                      {"--deadline", "1"},
                                      {"--record", "r"}}) {
        CHECK(refused({flag, value}, 1) ==
              std::string(flag) + " with --engine nccl: expected --engine threads or mpi");
    }
    CHECK(refused({"--width"}, 1).find("--width") == 0);
    CHECK(refused({"--schedule", "auto"}, 1) ==
          "--schedule 'auto': expected none, prefetch or prefetch:N: auto knows the speeds of hosts alone");
    const std::vector<const char*> planned{"--plan", "--mesh", "4x2x1", "--model", "124M"};
    const Ended plan = started(planned);
    CHECK(plan.status == EXIT_SUCCESS);
    CHECK(plan.out.find("model: 124") == 0);
    CHECK(plan.out.find("step 1/") == std::string::npos);
    for (const char* const flag : {"--text", "--encoding", "--resume"}) {
        auto with = planned;
        with.insert(with.end(), {flag, "no-such-file"});
        CHECK(started(with).errors.find(std::string(flag) + " 'no-such-file': expected") != std::string::npos);
    }
    CHECK(refused({"--trace", "t"}, 1) == "--trace with --schedule none: expected prefetch");
    CHECK(refused({"--trace", "t", "--schedule", "prefetch", "--graph", "on"}, 1) ==
          "--trace with --graph on: expected off, as what a graph launches has no times");
    CHECK(refused({"--dtype", "fp64"}, 1) == "--dtype 'fp64': expected fp32 or bf16");
    CHECK(refused({"--mesh", "2x1x1"}, 4) ==
          "--mesh 2x1x1 has 2 ranks, but this job has 4 processes: expected --mesh 4x1x1");
    CHECK(refused({"--policy", "hybrid_shard:3"}, 4) ==
          "--policy 'hybrid_shard:3': expected a group that divides the 4 data-parallel ranks of --mesh 4x1x1");
    CHECK(refused({"--batch", "6"}, 4) ==
          "--batch 6: expected a multiple of the 4 data-parallel ranks of --mesh 4x1x1");
    CHECK(refused({"--experts", "4", "--graph", "on"}, 1) ==
          "--experts 4 and --graph on with --capacity 0: expected a capacity, as without one the host reads in each "
          "pass how many rows each expert gets");
    CHECK(refused({"--heads", "3"}, 1) == "--heads 3: expected a divisor of --width 128");
}

TEST_CASE(
    "gpt.device: weights of GPT-2 go in and out as they are, with a vocabulary that is padded in memory alone") {
    const temporary_folder::Folder folder;
    Options options = test::base();
    options.dtype = Dtype::fp32;
    options.batch = 4;
    options.steps = 4;
    options.model.vocabulary = 250;
    options.names = NameKind::gpt2;
    options.save = folder.file("host");
    options.text = licence;
    const Text text = read_text(options);
    const auto on_host = [&] {
        Job job{options, text.tokens};
        job.identity = identity_of(options, text.tokens);
        job.start = find_start(options, job.identity);
        return train(job);
    };
    const std::string weights = on_host().saved + "/model.safetensors";
    options.save.clear();
    options.init = weights;
    const double loss = on_host().losses.front();
    options.init.clear();

    const std::string to = folder.file("device");
    const Ended ended = started({"--text",       licence.c_str(),
                                 "--steps",      "4",
                                 "--batch",      "4",
                                 "--sequence",   "8",
                                 "--layers",     "2",
                                 "--width",      "8",
                                 "--heads",      "2",
                                 "--vocabulary", "250",
                                 "--seed",       "3",
                                 "--init",       weights.c_str(),
                                 "--names",      "gpt2",
                                 "--save",       to.c_str(),
                                 "--lr",         "0",
                                 "--every",      "1",
                                 "--graph",      "on"});
    CHECK(ended.errors == "");
    CHECK(ended.out.find("step 1/4  loss " + program::formatted("%.4f", loss)) != std::string::npos);
    CHECK(ended.out.find("saved: " + to + "/step-00000004\n") != std::string::npos);
    const sk::safetensors::File before(weights), after(to + "/step-00000004/model.safetensors");
    REQUIRE(after.tensors().size() == before.tensors().size());
    for (const auto& tensor : before.tensors()) {
        CAPTURE(tensor.name);
        const auto* const same = after.find(tensor.name);
        REQUIRE(same != nullptr);
        CHECK(same->shape == tensor.shape);
        CHECK(tensor.shape.extents[0] != 256);
        CHECK(after.read<float>(tensor.name) == before.read<float>(tensor.name));
    }
}

TEST_CASE("gpt.device: a run that was saved on GPUs goes on there and on hosts") {
    const temporary_folder::Folder folder;
    Options options = test::base();
    options.dtype = Dtype::fp32;
    options.batch = 4;
    options.steps = 6;
    options.text = licence;
    const Text text = read_text(options);
    Job job{options, text.tokens};
    const Results whole = train(job);
    const std::string to = folder.file("run"), from = to + "/step-00000003";
    const std::vector<const char*> words{
        "--text", licence.c_str(), "--steps", "6",       "--batch", "4",      "--sequence", "8",       "--layers",
        "2",      "--width",       "8",       "--heads", "2",       "--seed", "3",          "--every", "1"};
    auto saving = words;
    saving.insert(saving.end(), {"--save", to.c_str(), "--save-every", "3"});
    CHECK(started(saving).errors == "");
    auto resumed = words;
    resumed.insert(resumed.end(), {"--resume", from.c_str()});
    const Ended ended = started(resumed);
    CHECK(ended.errors == "");
    CHECK(ended.out.find("\nresume: '" + from + "', after step 3 of 6\n") != std::string::npos);
    CHECK(ended.out.find("\nstep 4/6  loss " + program::formatted("%.4f", whole.losses[3])) != std::string::npos);
    CHECK(ended.out.find("step 6/6  loss " + program::formatted("%.4f", whole.losses[5])) != std::string::npos);
    job.options.resume = from;
    job.identity = identity_of(job.options, text.tokens);
    job.start = find_start(job.options, job.identity);
    CHECK(worst(train(job).losses, {whole.losses[3], whole.losses[4], whole.losses[5]}) < 1e-5);
}

}  // namespace program_test
