// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "../../examples/common/input_error.hpp"
#include "../../examples/train_gpt/program/command_line.hpp"
#include "../../examples/train_gpt/program/plan_summary.hpp"

using namespace train_gpt;

namespace command_line_test {

namespace {

/// Splits at blanks; '' is an empty argument.
std::optional<Options> parse(const std::string& line, std::string* help = nullptr) {
    std::vector<std::string> words{"train_gpt"};
    std::istringstream stream(line);
    for (std::string word; stream >> word;) { words.push_back(word == "''" ? "" : word); }
    std::vector<const char*> arguments;
    for (const auto& word : words) { arguments.push_back(word.c_str()); }
    std::string text;
    const auto options = parse_command_line(static_cast<int>(arguments.size()), arguments.data(), text);
    if (help != nullptr) { *help = text; }
    return options;
}

std::string error_of(const std::string& line) {
    try {
        parse(line);
    } catch (const program::InputError& error) { return error.what(); }
    return "no error";
}

}  // namespace

TEST_SUITE("gpt.command_line") {
    TEST_CASE("every flag reaches its option") {
        const auto o = parse(
            "--mesh 4x1x1 --policy hybrid_shard:2 --engine threads --steps 7 --batch 24 --microbatches 3 --sequence "
            "9 "
            "--layers 2 --width 12 --heads 3 --head untied --dtype bf16 --optimizer sgd --lr 0.5 --weight-decay 0.25 "
            "--clip 0 --seed 18446744073709551615 --text a.txt --json b.json --plot c.svg --sample 5 "
            "--schedule prefetch:3 --memory-limit 3G --schedule-out d.txt --hashes e.tsv --verify-every 100");
        REQUIRE(o);
        CHECK(o->mesh.describe() == "4x1x1");
        CHECK(o->policy.text() == "hybrid_shard:2");
        CHECK(o->engine == EngineKind::threads);
        CHECK(o->steps == 7);
        CHECK(o->batch == 24);
        CHECK(o->microbatches == 3);
        CHECK(o->model.sequence == 9);
        CHECK(o->model.layers == 2);
        CHECK(o->model.width == 12);
        CHECK(o->model.heads == 3);
        CHECK(o->model.head == HeadKind::untied);
        CHECK(o->dtype == Dtype::bf16);
        CHECK(o->optimizer == OptimizerKind::sgd);
        CHECK(o->learning_rate == 0.5);
        CHECK(o->weight_decay == 0.25);
        CHECK(o->clip == 0.0);
        CHECK(o->seed == 18446744073709551615U);
        CHECK(o->text == "a.txt");
        CHECK(o->json == "b.json");
        CHECK(o->plot == "c.svg");
        CHECK(o->sample == 5);
        CHECK(o->schedule.text() == "prefetch:3");
        CHECK(o->memory_limit == std::uint64_t{3} << 30U);
        CHECK(o->schedule_out == "d.txt");
        CHECK(o->hashes == "e.tsv");
        CHECK(o->verify_every == 100);
        CHECK(parse("")->schedule.text() == "auto");
        CHECK(parse("--schedule none")->schedule.text() == "none");
        CHECK(o->ranks_per_host == 0);
        CHECK(parse("--plan --ranks-per-host 8")->ranks_per_host == 8);
        CHECK(parse("--schedule prefetch")->schedule.text() == "prefetch:1");
        CHECK(parse("--schedule auto")->schedule.text() == "auto");
        CHECK(o->action == Options::Action::train);
        CHECK(parse("--plan")->action == Options::Action::plan);
        CHECK(parse("--optimizer lion")->optimizer == OptimizerKind::lion);
        CHECK(parse("--optimizer lion")->learning_rate == 3e-4);
        CHECK(parse("--optimizer muon")->learning_rate == 1e-3);
        CHECK(parse("--optimizer lion --lr 1e-3")->learning_rate == 1e-3);
        const auto saving =
            parse("--save runs/7 --save-every 10 --keep 3 --resume runs/6 --init model.safetensors --names gpt2");
        CHECK(saving->save == "runs/7");
        CHECK(saving->save_every == 10);
        CHECK(saving->keep == 3);
        CHECK(saving->resume == "runs/6");
        CHECK(saving->init == "model.safetensors");
        CHECK(saving->names == NameKind::gpt2);
        const auto gpt2 = parse("--layers 3 --model 350M --head untied");
        CHECK(gpt2->model.layers == 3);
        CHECK(gpt2->model.width == 1024);
        CHECK(gpt2->model.heads == 16);
        CHECK(gpt2->model.sequence == 1024);
        CHECK(gpt2->model.vocabulary == 50'257);
        CHECK(gpt2->model.head == HeadKind::untied);
        CHECK(parse("--tokens a.bin")->tokens == "a.bin");
        CHECK(parse("--tokens a.bin")->model.vocabulary == 50'257);
        CHECK(parse("--tokens a.bin --vocabulary 300")->model.vocabulary == 300);
        CHECK(parse("--recompute on")->model.recompute);
        CHECK(parse("--engine nccl --every 1000000000 --steps 5")->every == 5);
        CHECK(parse("--vocabulary 300")->model.vocabulary == 300);
        CHECK(parse("--save runs/7")->names == NameKind::shardkit);
        CHECK(parse("--encoding merges.txt --sample 3")->model.vocabulary == gpt2_vocabulary);
        CHECK(parse("--encoding merges.txt --vocabulary 300")->model.vocabulary == 300);
        CHECK(parse("--encoding merges.txt --tokens a.bin --sample 3")->sample == 3);
        std::string help;
        CHECK_FALSE(parse("--help", &help));
        CHECK(help.find("--microbatches") != std::string::npos);
    }

    TEST_CASE("bad input is refused in one line that names what was given and what was expected") {
        const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
            {"--mesh 2x2", {"--mesh", "'2x2'", "DPxTPxCP"}},
            {"--graph on", {"--graph with --engine threads: expected --engine nccl"}},
            {"--engine mpi --every 5", {"--every with --engine mpi: expected --engine nccl"}},
            {"--mesh 0x1x1", {"'0x1x1'", "at least 1"}},
            {"--mesh 2x1x1x", {"'2x1x1x'", "DPxTPxCP"}},
            {"--mesh 2x3x1", {"--heads 4", "2x3x1", "multiple of tp = 3"}},
            {"--mesh 1x3x1 --heads 3 --width 96", {"1x3x1", "tp that divides the vocabulary of 256"}},
            {"--tokens a.bin --text b.txt", {"--text with --tokens", "one of them"}},
            {"--tokens a.bin --vocabulary 99 --sample 3",
             {"--sample with --tokens", "expected --encoding, or a text"}},
            {"--model 125M", {"--model '125M'", "124M, 350M or 1.5B"}},
            {"--vocabulary 65537", {"--vocabulary '65537'", "from 1 to 65536"}},
            {"--vocabulary 257 --sample 3", {"--vocabulary 257", "at most its 256"}},
            {"--mesh 1x1x3", {"--sequence 64", "1x1x3", "multiple of 6"}},
            {"--mesh 1x1x2 --sequence 6", {"--sequence 6", "multiple of 4"}},
            {"--mesh 1x4x1 --sequence-parallel on --sequence 6", {"--sequence 6", "multiple of 4", "cp * tp"}},
            {"--mesh 1x4x3 --sequence-parallel on --sequence 18", {"--sequence 18", "multiple of 12"}},
            {"--sequence-parallel yes", {"'yes'", "off or on"}},
            {"--context all", {"'all'", "ring or gather"}},
            {"--policy hybrid_shard:4 --mesh 2x2x1", {"hybrid_shard:4", "divides the 2"}},
            {"--batch 15 --mesh 2x2x2", {"--batch 15", "multiple of the 2 data-parallel ranks"}},
            {"--engine cuda", {"'cuda'", "threads, mpi or nccl"}},
            {"--batch 15", {"--batch 15", "multiple of the 2 data-parallel ranks"}},
            {"--batch 16 --microbatches 3", {"--batch 16", "multiple of --microbatches 3"}},
            {"--batch 4 --microbatches 4", {"--batch 4", "2 x 4"}},
            {"--heads 3", {"--heads 3", "--width 128"}},
            {"--policy zero3", {"'zero3'", "full_shard"}},
            {"--policy hybrid_shard", {"'hybrid_shard'", "hybrid_shard:N"}},
            {"--policy full_shard:2", {"'full_shard:2'", "secondary_shard:N"}},
            {"--policy hybrid_optimizer:3 --mesh 4x1x1", {"hybrid_optimizer:3", "divides the 4"}},
            {"--policy hybrid_shard:0", {"'hybrid_shard:0'", "at least 1"}},
            {"--policy hybrid_shard:3 --mesh 4x1x1", {"hybrid_shard:3", "divides the 4"}},
            {"--schedule ahead", {"--schedule 'ahead'", "none, auto, prefetch or prefetch:N"}},
            {"--schedule none --trace a.json", {"--trace with --schedule none", "expected prefetch or auto"}},
            {"--schedule prefetch:0", {"'prefetch:0'", "at least 1"}},
            {"--schedule prefetch:-1", {"'prefetch:-1'", "at least 1"}},
            {"--schedule prefetch:", {"'prefetch:'", "at least 1"}},
            {"--memory-limit much", {"--memory-limit 'much'", "bytes from 1 to 1024G"}},
            {"--schedule-out ''", {"--schedule-out ''", "a file name"}},
            {"--ranks-per-host 2", {"--ranks-per-host with --engine threads", "expected --engine mpi or --plan"}},
            {"--plan --ranks-per-host 0", {"--ranks-per-host '0'", "whole number from 1"}},
            {"--dtype fp16", {"'fp16'", "fp64, fp32 or bf16"}},
            {"--optimizer adam", {"'adam'", "adamw, sgd, lion or muon"}},
            {"--head both", {"'both'", "tied or untied"}},
            {"--bogus 3", {"'--bogus'", "--help"}},
            {"stray", {"'stray'", "--help"}},
            {"--lr", {"--lr"}},
            {"--steps 5 --steps 6", {"--steps '5' and '6'", "expected one value"}},
            {"--lr nan", {"--lr 'nan'", "finite number of at least 0"}},
            {"--lr inf", {"--lr 'inf'", "finite number of at least 0"}},
            {"--lr -inf", {"--lr '-inf'", "finite number of at least 0"}},
            {"--lr -1e-3", {"--lr '-1e-3'", "finite number of at least 0"}},
            {"--lr 1e999", {"--lr '1e999'", "finite number of at least 0"}},
            {"--lr 1e-3x", {"--lr '1e-3x'", "finite number of at least 0"}},
            {"--weight-decay NaN", {"--weight-decay 'NaN'", "finite number of at least 0"}},
            {"--clip -1", {"--clip '-1'", "finite number of at least 0"}},
            {"--steps 0", {"--steps '0'", "whole number from 1"}},
            {"--steps -3", {"--steps '-3'", "whole number from 1"}},
            {"--steps 1.5", {"--steps '1.5'", "whole number from 1"}},
            {"--steps many", {"--steps 'many'", "whole number from 1"}},
            {"--steps ''", {"--steps ''", "whole number from 1"}},
            {"--batch 99999999999999999999", {"--batch", "whole number"}},
            {"--seed -1", {"--seed '-1'", "whole number from 0"}},
            {"--width 0", {"--width '0'", "whole number from 1"}},
            {"--layers 0", {"--layers '0'", "whole number from 1"}},
            {"--width 99999999999 --heads 1", {"--width 99999999999", "at most"}},
            {"--width 536870911 --heads 1 --layers 2147483647",
             {"--width 536870911 and --layers 2147483647", "parameters overflow 64 bits"}},
            {"--sequence 2147483647 --batch 1 --mesh 1x1x1 --layers 1 --width 8 --heads 2",
             {"--sequence 2147483647", "attention scores overflow 64 bits"}},
            {"--sequence 2000000000 --batch 1 --mesh 1x1x1 --width 50000000 --heads 1 --layers 6",
             {"2000000000 tokens in one pass", "activations overflow 64 bits"}},
            {"--sequence 2000000000", {"2000000000 tokens", "at most", "--microbatches"}},
            {"--text ''", {"--text ''", "a file name"}},
            {"--save ''", {"--save ''", "a file name"}},
            {"--save-every 5", {"--save-every alone", "expected --save as well"}},
            {"--save a --save-every 0", {"--save-every '0'", "whole number from 1"}},
            {"--keep 5", {"--keep alone", "expected --save as well"}},
            {"--ep 2", {"--ep 2", "expected --experts"}},
            {"--top 3", {"--top alone", "expected --experts as well"}},
            {"--experts 0 --capacity 8", {"--capacity alone", "expected --experts as well"}},
            {"--experts 4 --top 5", {"--top 5 of --experts 4", "expected at most as many"}},
            {"--experts 4 --mesh 3x1x1 --ep 3 --batch 12", {"--experts 4", "expected a multiple of --ep 3"}},
            {"--experts 6 --mesh 4x1x1 --ep 3", {"--ep 3 with --mesh 4x1x1", "expected a divisor of dp x cp"}},
            {"--experts 4 --mesh 4x1x1 --ep 4 --policy hybrid_shard:2",
             {"--ep 4", "--policy hybrid_shard:2", "expected a divisor of a group's 2 data ranks"}},
            {"--experts 4 --mesh 2x1x1 --ep 2 --slices 8 --dtype bf16",
             {"--slices 8 with --ep 2 and --dtype bf16", "expected fp32 or fp64"}},
            {"--experts 4 --mesh 1x2x1 --sequence-parallel on",
             {"--experts 4", "--sequence-parallel on", "expected off"}},
            {"--names gpt2", {"--names alone", "expected --save or --init as well"}},
            {"--init a --names llama", {"'llama'", "shardkit or gpt2"}},
        };
        for (const auto& each : cases) {
            const std::string& line = each.first;
            const std::string message = error_of(line);
            CAPTURE(line);
            CAPTURE(message);
            CHECK(message.find('\n') == std::string::npos);
            for (const auto& fragment : each.second) { CHECK(message.find(fragment) != std::string::npos); }
        }
    }

    TEST_CASE("microbatches cut a rank's sequences into parts that differ by one at most and cover all") {
        for (const std::size_t world : {1U, 2U, 3U, 5U}) {
            for (const std::size_t microbatches : {1U, 2U, 3U, 4U, 6U}) {
                Options o;
                o.mesh = {world, 1, 1};
                o.batch = 120;
                o.microbatches = microbatches;
                CHECK_NOTHROW(validate(o));
                CHECK(o.microbatch_begin(0) == 0);
                CHECK(o.microbatch_begin(microbatches) == 120 / world);
                for (std::size_t m = 0; m < microbatches; ++m) {
                    const std::size_t part = o.microbatch_begin(m + 1) - o.microbatch_begin(m);
                    CHECK(part <= o.pass_shape().batch);
                    CHECK(part + 1 >= o.pass_shape().batch);
                }
            }
        }
    }

    TEST_CASE("--plan prints the plan of a mesh that no laptop has, without taking its memory") {
        const auto options =
            parse("--plan --mesh 64x1x1 --batch 64 --width 4096 --layers 32 --heads 32 --sequence 2048 --dtype bf16");
        REQUIRE(options);
        const PlanSummary plan = make_plan(*options);
        // GPT with biases: 12 C^2 + 13 C a block, 256 C + S C in front, 2 C behind.
        const std::size_t c = 4096;
        CHECK(plan.library.numel == 32 * (12 * c * c + 13 * c) + (256 + 2048) * c + 2 * c);
        const double per_rank = static_cast<double>(plan.library.numel) / 64;
        const auto& memory = plan.library.memory;
        CHECK(static_cast<double>(memory.parameters.value) == doctest::Approx(2 * per_rank).epsilon(0.001));
        CHECK(static_cast<double>(memory.master.value) == doctest::Approx(4 * per_rank).epsilon(0.001));
        CHECK(static_cast<double>(memory.optimizer.value) == doctest::Approx(8 * per_rank).epsilon(0.001));
        const std::string text = describe_plan(*options, plan);
        for (const char* word : {"64x1x1", "full_shard", "parameters", "gradients", "optimizer", "schedule's arena",
                                 "activations", "total", "all_gather", "reduce_scatter"}) {
            CAPTURE(word);
            CHECK(text.find(word) != std::string::npos);
        }
    }
}

}  // namespace command_line_test
