# SPDX-License-Identifier: Apache-2.0
"""run.py [--compiler g++] [--jobs N] [--target NAME]: drops, doubles and runs over a wrong axis every reduction over
ranks in the library and in the example trainer, drops and runs over a wrong axis every row of the placement table, and
spoils the optimizers' arithmetic and stochastic rounding, one at a time; builds and runs a program against each mutant that must fail. Prints
site, mutant and what killed it; fails on a survivor, and when a site is written in a way that this script does not
understand.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples"
TRAINER = EXAMPLES / "train_gpt"
FLAGS = ["-std=c++20", "-O0", "-w", "-pthread"]
NOT_BUILT = "compiler: "
# Which of the mutants that were compiled into one program runs; 0 is none of them.
CHOSEN = """#include <cstdlib>
#include <type_traits>
namespace mutation {
inline int chosen_at_run_time() {
    static const char* const number = std::getenv("SHARDKIT_MUTANT");
    return number == nullptr ? 0 : std::atoi(number);
}
constexpr int chosen() { return std::is_constant_evaluated() ? 0 : chosen_at_run_time(); }
}
"""
STANDARD = re.compile(r"^#include <[a-z_]+>$", re.MULTILINE)
# What is no code, and the names of the verbs that reduce. Behind SPOKEN_OF they name a kind of call, and call nothing;
# any other use has to be a statement of its own.
NO_CODE = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"|^#include[^\n]*|\benum class [^{;]*\{[^}]*\}', re.MULTILINE)
VERB = re.compile(r"(?:\b(?P<scope>\w+)::)?\b(?:all_reduce|reduce_scatter)(?P<in_place>_in_place|_span)?\b")
SPOKEN_OF = {"Act", "Transition", "Verb"}
# Folders of the library that make the verbs or pass calls on to them, and so are not mutated.
VERBS_MADE = ["backend", "compiled", "verbs"]
# What a call may reduce by. Only sums are doubled: minima and maxima, which `op` stands for, would stay what they are.
# A TreelessOp has what the sum would have.
SUM = re.compile(r"(?:(?:detail::)?TreelessOp\()?(?:(?:sk::)?ReduceOp::sum|squares \? ReduceOp::sum : ReduceOp::max)\)?|summed")
OTHER = re.compile(r"(?:TreelessOp\()?(?:sk::)?ReduceOp::(?:max|min)\)?|op")
# What a site may reduce over, and the wrong axes to try instead. Communicators that are made elsewhere for one axis get
# their wrong axes there: see MADE, and for a group's ROW.
AXES = {
    "comm": [],
    "comms_[row.over]": [],
    "rank.world()": ["rank.template sub_mesh<shardkit::Axes<shardkit::Dp>>()",
                     "rank.template sub_mesh<shardkit::Axes<shardkit::Tp>>()"],
    "tp": [],
    "tp_": [],
    "cp_": [],
    "data_ranks_": [],
}
# The same for one file, where another communicator is at hand.
AXES_IN = {
    "engine_links.hpp": {"tp_": ["rank_.template sub_mesh<sk::Axes<sk::Dp>>()",
                                 "rank_.template sub_mesh<sk::Axes<sk::Cp>>()"]},
    "trainer.hpp": {"ranks": []},
}
MADE = re.compile(r"rank\.template sub_mesh<sk::Axes<(?P<axes>[^>]*)>>\(\)")
WRONG = {
    "sk::Tp": ["sk::Dp", "sk::Cp"],
    "sk::Cp": ["sk::Dp", "sk::Tp"],
    "sk::Dp, sk::Cp": ["sk::Dp", "sk::Cp", "sk::Tp"],
}
# A row of the placement table, and the wrong ranks for each.
TABLE = "shardkit/policy/placement_table.hpp"
ROW = re.compile(r"table\.add\(\s*collective\([^;]*?(?P<over>\bOver::\w+|\bover\b)[^;]*\)\);")
WRONG_OVER = {
    "Over::shards": ["Over::replicas", "Over::data"],
    "Over::replicas": ["Over::shards", "Over::data"],
    "Over::tp": ["Over::shards", "Over::data"],
    "over": ["Over::shards", "Over::replicas", "Over::data"],
}
# Sums over tp that the types ask for: file, name, pattern, replacement.
TYPED = [
    ("train_gpt/model/parameters.hpp", "positions not summed over tp", r"(\"wpe\".*)sk::tp::PartialSum", r"\1sk::tp::Replicated"),
    ("train_gpt/model/parameters.hpp", "a block's norms and biases not summed over tp",
     r"(\"(?:norm[12]_\w+|projection_bias|down_bias)\".*)sk::tp::PartialSum", r"\1sk::tp::Replicated"),
    ("train_gpt/model/parameters.hpp", "the last norm not summed over tp", r"(\"norm_\w+\".*)sk::tp::PartialSum",
     r"\1sk::tp::Replicated"),
]
# Who adds what every tp rank holds whole: file, name, the expression in [[ ]] within what stands around it, replacement.
ADDED = [
    ("train_gpt/model/split.hpp", "whole gradients added by every tp rank", "[[tp_index == 0 || splits_tokens()]]", "true"),
    ("train_gpt/model/split.hpp", "whole gradients added by the first tp rank alone",
     "[[tp_index == 0 || splits_tokens()]]", "tp_index == 0"),
]
# What ranks took and made, likewise, and by statements.
MADE_BY_RANKS = "trainer_.reduce_numbers([[rank_.world()]], sk::ReduceOp::sum, sums);"
ADDED += [
    ("train_gpt/program/rank_steps.hpp", f"what ranks communicate, over {axis} alone", MADE_BY_RANKS,
     f"rank_.template sub_mesh<sk::Axes<sk::{axis}>>()")
    for axis in ("Dp", "Tp")
]
NUMBERS = "sk::all_reduce_in_place(ranks, op, there, compute);"
ADDED_STATEMENTS = [("train_gpt/program/trainer.hpp", "losses added twice", NUMBERS, f"{NUMBERS} {NUMBERS}")]
# What an element's step is made of, likewise.
LION = "shardkit/optim/lion.hpp"
DIRECTION = "direction = [[sign(V(beta1 * exp_avg + one_minus_beta1 * g))]];"
ADAMW = "shardkit/optim/adamw.hpp"
SGD = "shardkit/optim/sgd.hpp"
BEGIN_STEP = "shardkit/optim/begin_step.hpp"
RULE_FUNCTIONS = "shardkit/optim/rule_functions.hpp"
ARITHMETIC = [
    (LION, "Lion's betas swapped in the direction", DIRECTION, "sign(V(beta2 * exp_avg + one_minus_beta2 * g))"),
    (LION, "Lion's sign dropped", DIRECTION, "V(beta1 * exp_avg + one_minus_beta1 * g)"),
    (LION, "Lion's momentum taken before the direction", DIRECTION,
     "sign(V(beta1 * (beta2 * exp_avg + one_minus_beta2 * g) + one_minus_beta1 * g))"),
    (LION, "Lion's betas swapped in the momentum", "[[beta2 * exp_avg + one_minus_beta2 * g]]",
     "beta1 * exp_avg + one_minus_beta1 * g"),
    (LION, "Lion's sign of zero is one", "[[select(value < A{0}, V(A{-1}), value)]]",
     "select(value < A{0}, V(A{-1}), V(A{1}))"),
    (LION, "Lion without weight decay", "[[decay * parameter]] -", "parameter"),
    (ADAMW, "AdamW's first moment without its beta", "exp_avg = [[beta1 * exp_avg + one_minus_beta1 * g]];",
     "exp_avg + one_minus_beta1 * g"),
    (ADAMW, "AdamW's second moment of the gradient", "+ [[(one_minus_beta2 * g) * g]];", "one_minus_beta2 * g"),
    (ADAMW, "AdamW without bias correction of the root", "[[square_root(second_moment) * inverse_root]]",
     "square_root(second_moment)"),
    (ADAMW, "AdamW without weight decay", "[[decay * parameter]] -", "parameter"),
    (SGD, "Nesterov's momentum is the classical one", "[[g + momentum * momentum_buffer]] :", "momentum_buffer"),
    (SGD, "SGD without weight decay", "[[gradient_scale * gradient + weight_decay * parameter]]",
     "gradient_scale * gradient"),
    (BEGIN_STEP, "the loss scale and divisor not taken out of the gradient",
     "[[detail::unscale(divisor_scale, loss_scale) * coefficient.value()]]", "coefficient.value()"),
    (BEGIN_STEP, "no step is skipped", "[[coefficient.found_inf() == FoundInf::yes ? 1 : 0]]", "0"),
    (RULE_FUNCTIONS, "parameter groups keep the optimizer's weight decay", "auto options = [[given.options]].as<",
     "own.options"),
    (RULE_FUNCTIONS, "parameter groups keep the optimizer's learning rate",
     "static_cast<Rate>([[given.learning_rate_scale]]);", "1.0"),
]
# What stochastic rounding is made of, by statements: file, name, statement, replacement.
DRAWN = "return rules::philox({low(block), high(block), low(step), high(step)}, {low(seed), high(seed)});"
DRAWS = "shardkit/core/stochastic_rounding.hpp"
ROUNDED = "updated_.round(masters, stored, count, work_.seed, *work_.steps, part.element);"
ROUNDING = [
    (DRAWS, "philox without its second key's rounds", "key[1] += 0xBB67AE85U;", "key[1] += 0x9E3779B9U;"),
    (DRAWS, "draws that no seed decides", DRAWN,
     "return rules::philox({low(block), high(block), low(step), high(step)}, {0, 0});"),
    (DRAWS, "draws of the seed's lower word", DRAWN,
     "return rules::philox({low(block), high(block), low(step), high(step)}, {low(seed), 0});"),
    (DRAWS, "the same draws in every step", DRAWN,
     "return rules::philox({low(block), high(block), 0, 0}, {low(seed), high(seed)});"),
    (DRAWS, "draws that repeat after 2^35 elements", DRAWN,
     "return rules::philox({low(block), 0, low(step), high(step)}, {low(seed), high(seed)});"),
    (DRAWS, "draws of a pack that begins in the middle of a block", "next = draws_of_block(seed, step, block + 1);",
     "next = own;"),
    (DRAWS, "draws of a pack one word late", "words[i] = (skipped & 2U) != 0 ? words[i + 1] : words[i];", ";"),
    (DRAWS, "one draw for two elements", "return words[i / 2] >> (i % 2 * 16) & 0xFFFFU;",
     "return words[i / 2] & 0xFFFFU;"),
    ("shardkit/backend/host/range_updates.hpp", "the last block's draws",
     "if (i == 0 || element % 8 == 0) { draws = shardkit::detail::draws_of_block(seed, step, element / 8); }",
     "if (i == 0) { draws = shardkit::detail::draws_of_block(seed, step, element / 8); }"),
    (DRAWS, "bf16 rounded down", "return static_cast<std::uint16_t>((word + draw) >> 16U);",
     "return static_cast<std::uint16_t>(word >> 16U);"),
    (DRAWS, "bf16 rounded to the nearest", "return static_cast<std::uint16_t>((word + draw) >> 16U);",
     "return bf16(value).bits;"),
    (DRAWS, "bf16 with a bias of one draw", "return static_cast<std::uint16_t>((word + draw) >> 16U);",
     "return static_cast<std::uint16_t>((word + draw + 1) >> 16U);"),
    (DRAWS, "fp16 with half a draw", "return static_cast<std::uint16_t>(sign | (magnitude - 0x38000000U + (draw >> 3U)) >> 13U);",
     "return static_cast<std::uint16_t>(sign | (magnitude - 0x38000000U + (draw >> 4U)) >> 13U);"),
    (DRAWS, "subnormal fp16 with half a draw", "return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>((units + draw) >> 16U));",
     "return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>((units + draw / 2) >> 16U));"),
    ("shardkit/sharded/place_group.hpp", "groups of one seed draw the same", "own.add(g.path);", "static_cast<void>(0);"),
    ("shardkit/sharded/place_group.hpp", "groups of one path draw the same", "own.add(values.stochastic_rounding->seed);",
     "static_cast<void>(0);"),
    ("shardkit/optim/group_optimizer.hpp", "elements by their number in tp's part",
     "f(segment.parameter, IndexRange{begin, begin + run}, before[segment.parameter] + whole);",
     "f(segment.parameter, IndexRange{begin, begin + run}, before[segment.parameter] + part);"),
    ("shardkit/optim/group_optimizer.hpp", "elements by their number in the parameter",
     "f(segment.parameter, IndexRange{begin, begin + run}, before[segment.parameter] + whole);",
     "f(segment.parameter, IndexRange{begin, begin + run}, whole);"),
    ("shardkit/optim/group_optimizer.hpp", "elements by their place in the flat buffer",
     "f(segment.parameter, IndexRange{begin, begin + run}, before[segment.parameter] + whole);",
     "f(segment.parameter, IndexRange{begin, begin + run}, begin);"),
    ("shardkit/optim/group_optimizer.hpp", "ranges of elements that do not follow each other made one",
     "return last.update == next.update && (!counted || last.element + (last.end - last.begin) == next.element);",
     "return last.update == next.update;"),
    ("shardkit/optim/any_update.hpp", "elements by their place in the shard", ROUNDED, ROUNDED.replace("part.element", "begin")),
    ("shardkit/optim/any_update.hpp", "draws that begin anew in every block of an update", ROUNDED,
     ROUNDED.replace("part.element", "range.element")),
]

# What an optimizer of whole matrices is made of: exchanges by statements, numbers by expressions.
LAUNCHES = "shardkit/muon/matrix_launches.hpp"
PLACEMENT = "shardkit/muon/matrix_placement.hpp"
MUON = "shardkit/muon/muon_rule.hpp"
NEWTON = "shardkit/muon/newton_schulz.hpp"
TO_OWNERS = """exchange_pieces(step.rank, batch.of.sent, pieces_[slot].span(), batch.of.received,
                                owned_[slot].span(), step.where);"""
FROM_OWNERS = """exchange_pieces(step.rank, batch.of.received, owned_[slot].span(), batch.of.sent, pieces_[slot].span(),
                        step.where);"""
TO_COPIES = """broadcast(*copies.ranks, pieces_[slot].span().subspan(piece->offset, piece->elements.size()), copies.root,
                      communication, step.where);"""
TRANSFORM = """rule_.transform(compute, products_,
                                {of.block(), matrix_.span().subspan(block * numel, numel), scratch_.span(),
                                 kept_[u].span().subspan(block * kept, kept), update, step.skip});"""
MATRIX_STATEMENTS = [
    (LAUNCHES, "directions that do not travel to owners", TO_OWNERS, "static_cast<void>(0);"),
    (LAUNCHES, "what owners computed does not travel back", FROM_OWNERS, "static_cast<void>(0);"),
    (LAUNCHES, "copies that do not get what owners computed", TO_COPIES, "static_cast<void>(0);"),
    (LAUNCHES, "copies get it from the first of them", TO_COPIES, TO_COPIES.replace("copies.root", "0")),
    (LAUNCHES, "pieces not put together", "move_pieces<false>(compute, batch.of, u, owned_[slot].span());",
     "static_cast<void>(0);"),
    (LAUNCHES, "a matrix not cut again", "move_pieces<true>(compute, batch.of, u, owned_[slot].span());",
     "static_cast<void>(0);"),
    (LAUNCHES, "a matrix that is not transformed", TRANSFORM, "static_cast<void>(0);"),
    (NEWTON, "the upper half of the gram matrix is not the lower", "mirror(gram, polynomial);",
     "host::AnyKernels::convert(stream, std::span<const A>(gram, rows * rows), std::span<A>(polynomial, rows * rows));"),
    (NEWTON, "the upper half of the polynomial is not the lower",
     "mirror(polynomial, nullptr);", "static_cast<void>(0);"),
]
MATRIX_EXPRESSIONS = [
    (PLACEMENT, "a part of tp put where the first one's is", "p.tp.dimension, of.group().tp, [[of.tp(rank)]])", "0"),
    (NEWTON, "no division by the norm", "element = [[element / divisor]]; }\n            store(elements, to + at);", "element"),
    (NEWTON, "another coefficient of the cube", "gram, [[A(-4.7750)]], polynomial", "A(-4.7)"),
    (NEWTON, "another coefficient of the matrix", "x, [[A(3.4445)]], next", "A(3.4)"),
    (NEWTON, "another coefficient of the fifth power", "rows, rows, [[A(2.0315)]], gram", "A(2.0)"),
    (MUON, "Nesterov's momentum is the classical one", "[[V(momentum * buffer + g)]] : buffer;", "buffer"),
    (MUON, "Muon's momentum without its factor", "buffer = [[momentum * buffer + g]];", "buffer + g"),
    (MUON, "Muon without weight decay", "parameter = [[decay * parameter]] - step * moved;", "parameter"),
    (MUON, "Jordan's scale of wide matrices", "[[square_root(longer / columns)]];", "square_root(rows / columns)"),
    (MUON, "Moonlight's scale without its factor", "? [[0.2 * square_root(longer)]]", "square_root(longer)"),
]

# What states in bf16 and in blocks of 8 bits are made of, and split masters, likewise.
BLOCK8 = "shardkit/core/block8.hpp"
STORAGE = "shardkit/kernels/state_storage.hpp"
SPLIT = "shardkit/core/split_float.hpp"
KEY = "key_([[mixed(low(seed) ^ mixed(high(seed) ^ low(step) ^ (high(step) + pair) * spread))]]) {}"
CODES = [
    (BLOCK8, "codes that are cut off", "return [[((as_word(V(magnitude * inverse + 2.0F)) + draw) >> 19U & 0x7fU)]] |",
     "(as_word(V(magnitude * inverse + 2.0F)) >> 19U & 0x7fU)"),
    (BLOCK8, "codes to the nearest", "return [[((as_word(V(magnitude * inverse + 2.0F)) + draw) >> 19U & 0x7fU)]] |",
     "((as_word(V(magnitude * inverse + 2.0F)) + (1U << 18U)) >> 19U & 0x7fU)"),
    (BLOCK8, "numbers without their sign", "& 0x7fU) | [[(word >> 24U & 0x80U)]];", "(word & 0U)"),
    (BLOCK8, "a scale that the largest number is beyond", "+ [[(0x7f'ffffU - 0x77'0000U)]]) >> 23U;", "0U"),
    (BLOCK8, "scales of which the smallest code is subnormal", "return std::bit_cast<float>([[(exponent > least_exponent + 8 ? exponent - 8 : least_exponent)]] << 23U);",
     "(exponent > 9U ? exponent - 8 : 1U)"),
    (STORAGE, "states' draws that no step decides", KEY, "mixed(low(seed) ^ mixed(high(seed) ^ pair * spread))"),
    (STORAGE, "states' draws that no seed decides", KEY, "mixed(mixed(low(step) ^ pair * spread))"),
    (STORAGE, "two states with one draw", "return state % 2 != 0 ? [[W(drawn >> (32 - bits))]] :", "W(drawn & ((1U << bits) - 1))"),
    (SPLIT, "a rest without its sign",
     "const std::uint32_t word = [[(std::uint32_t{upper} << 16U) - ((std::uint32_t{lower} & 0x8000U) << 1U)]];",
     "std::uint32_t{upper} << 16U"),
    (SPLIT, "an upper half that is cut off", "[[word + 0x8000U]]", "word"),
    ("shardkit/backend/host/states.inc", "draws that begin anew in every block",
     "draw_block(states.draws[pair], [[states.element + b * Block8::block]], drawn[pair], parts);", "states.element"),
    ("shardkit/optim/rule_functions.hpp", "states' elements by their place in the shard",
     "{work.state_seed, work.steps, [[elements.element]]}", "elements.begin"),
]
STATES = [
    (BLOCK8, "squares that become zero", "return larger_word(code, W(smaller_word(word, 1U) + (offset >> 18U)));",
     "return code;"),
    (BLOCK8, "a NaN that is hidden", "return std::numeric_limits<float>::quiet_NaN();", "return 0.0F;"),
    (STORAGE, "draws that repeat after 2^32 elements", "return key_ ^ high(element) * spread;", "return key_;"),
    ("shardkit/optim/group_optimizer.hpp", "groups whose states draw the same", "seed.add(group.path);",
     "static_cast<void>(0);"),
]

# What exact sums and the norm's are made of, by statements likewise.
EXACT_SUM = "shardkit/core/exact_sum.hpp"
NORM_SUM = "shardkit/kernels/norm_sum.hpp"
NEAR = "shardkit/backend/host/for_each_lanes.hpp"
NEAR_SUM = "shardkit/backend/host/lanes.hpp"
NEAR_LOOP = "shardkit/backend/host/loops.inc"
EXACT = [
    (EXACT_SUM, "a carry lost where a number is split", "carried = moved >> 32U;", "carried = 0;"),
    (EXACT_SUM, "a carry lost in a sum that travels", "carried = number >> 32U;", "carried = 0;"),
    (EXACT_SUM, "digits that are not carried", "carried = whole >> 32U;", "carried = 0;"),
    (EXACT_SUM, "ties away from zero", "if (rest > half || (rest == half && ((fraction & 1U) != 0 || below()))) { ++fraction; }",
     "if (rest >= half) { ++fraction; }"),
    (EXACT_SUM, "a sum that is cut off", "if (rest > half || (rest == half && ((fraction & 1U) != 0 || below()))) { ++fraction; }",
     "static_cast<void>(below);"),
    (EXACT_SUM, "what is left of the third digit ignored", "if ((third << (32 - width) & low_word) != 0) { return true; }",
     "static_cast<void>(third);"),
    (EXACT_SUM, "digits below the third ignored",
     "for (std::size_t i = 0; i + 2 < last; ++i) {\n                if (parts_[i] != 0) { return true; }\n            }",
     "static_cast<void>(last);"),
    (EXACT_SUM, "one infinity taken for two", "if (parts_[negative_infinity] > 0) { return -infinity; }",
     "if (parts_[negative_infinity] > 0) { return infinity; }"),
    (NORM_SUM, "the window's upper half lost",
     "if constexpr (!single) { high_ += (fraction >> 1U >> (63 - shift)) + (low_ < moved ? 1 : 0); }",
     "static_cast<void>(moved);"),
    (NORM_SUM, "sums outside of the window taken in", "if (shift >= range) { return false; }",
     "if (shift >= 2 * range) { return false; }"),
    (NORM_SUM, "sums outside of the window lost", "squares.add(static_cast<double>(sums[at]));",
     "static_cast<void>(at);"),
    (NEAR_LOOP, "lower halves of fractions lost in lanes", "low += (words & 0x3ffffff) << shift;", "static_cast<void>(low);"),
    (NEAR_LOOP, "the upper bits of a lane lost", "sum.add(high[i] << 26, high[i] >> 38);", "sum.add(high[i] << 26, 0);"),
    (NEAR_LOOP, "zeros taken for powers of two", "high += ((words >> 26 & 0x3ffffff) | (~zero & 0x4000000)) << shift;",
     "high += ((words >> 26 & 0x3ffffff) | 0x4000000) << shift;"),
    (NEAR_LOOP, "zeros taken for powers of two in fp32", "total += ((floats & 0x7fffff) | (~zero & 0x800000)) << shift;",
     "total += ((floats & 0x7fffff) | 0x800000) << shift;"),
    (NEAR_LOOP, "the upper bits of a lane lost in fp32", "sum.add(total[i] << 29, total[i] >> 35);", "sum.add(total[i] << 29, 0);"),
    (NEAR, "sums handed over twice", "sum_ = {};", "static_cast<void>(sum_);"),
    (NEAR, "sums never handed over", "if (lowest_ != 0) { total_.add_integer(lowest_ - 1, sum_.low, sum_.high); }",
     "static_cast<void>(lowest_);"),
    (NEAR_SUM, "a carry lost between lanes", "high += upper + (low < lower ? 1 : 0);", "high += upper;"),
    (NEAR, "sums out of a lane's range taken in", "if (sum.shifts >= NearSum::range) { return false; }",
     "if (sum.shifts >= 2 * NearSum::range) { return false; }"),
]

# The levels of a tree of sums, likewise.
SUMMANDS = "shardkit/backend/host/summands.hpp"
BLOCKS = "shardkit/backend/host/rank_order_reduction.hpp"
COMBINED = "shardkit/backend/cub/combine.hpp"
TREE = [
    (SUMMANDS, "the left half of each level lost", "add_tree<half, In>(sum, operands, first, offset);", "static_cast<void>(first);"),
    (SUMMANDS, "the right half of each level lost", "add_tree<half, In>(right, operands, first + half, offset);",
     "static_cast<void>(first);"),
    (SUMMANDS, "the halves not joined", "sum.add(right);", "static_cast<void>(right);"),
    (SUMMANDS, "sums of bundles not joined", "sum.add(*std::launder(reinterpret_cast<const Sum*>(digit)));",
     "static_cast<void>(sum);"),
    (SUMMANDS, "sums of bundles joined with the lowest digit", "digit += digit_bytes;", "static_cast<void>(digit);"),
    (SUMMANDS, "only the first rank of a bundle before the last", "add_tree<bundle, In>(sum, operands_, q, offset + i);",
     "static_cast<void>(q);"),
    (SUMMANDS, "every block takes the first one's sums of bundles", "offset_ = offset;",
     "if (offset != 0) { offset_ = offset; return; } offset_ = offset;"),
    (BLOCKS, "elements behind whole registers lost", "if (rest != 0) { sum_rest<Tree, A, In, Out>(operands, count - rest, count); }",
     ""),
    (BLOCKS, "tiles of 8 ranks added in rank order", "done = ranks == 4   ? sum_side_by_side<4, In, Out>(operands, begin, count)\n"
     "                   : ranks == 8 ? sum_side_by_side<8, In, Out>(operands, begin, count)\n"
     "                                : sum_side_by_side<tree_of_bundles, In, Out>(operands, begin, count);", "done = sum_side_by_side<0, In, Out>(operands, begin, count);"),
    (BLOCKS, "a subtree joined with its neighbour's wrong one", "combine_block(stack[depth - 1], stack[depth], size, [](A a, A b) { return add(a, b); });",
     "combine_block(stack[0], stack[depth], size, [](A a, A b) { return add(a, b); });"),
    (COMBINED, "subtrees of 8 not joined", "left.add(sum);", "left = sum;"),
    (COMBINED, "digits above the lowest lost", "join<Level + 1>(digits, sum, number / 2);", "static_cast<void>(number);"),
    (COMBINED, "every digit put in the lowest place", "put<Level + 1>(digits, sum, number / 2);", "digits[0] = sum;"),
    (COMBINED, "too few digits for many ranks", "this->output[i] = static_cast<Out>(sum<28, 1>(i).lane[0]);",
     "this->output[i] = static_cast<Out>(sum<levels, 1>(i).lane[0]);"),
    (COMBINED, "halves of a subtree not joined", "sums.add(subtree<Ranks / 2, Width>(first + Ranks / 2, at));",
     "static_cast<void>(at);"),
    (COMBINED, "ranks behind the last four lost", "for (; q < this->ranks; ++q) { sums.add(this->row(q, at)); }", "static_cast<void>(q);"),
    (COMBINED, "four ranks added in another order", "for (const auto& each : rows) { sums.add(each); }",
     "for (std::size_t i = 4; i > 0; --i) { sums.add(rows[i - 1]); }"),
    (COMBINED, "one element of a load taken for all", "for (std::size_t i = 0; i < Width; ++i) { values.lane[i] = converted<A>(loaded.lane[i]); }",
     "for (std::size_t i = 0; i < Width; ++i) { values.lane[i] = converted<A>(loaded.lane[0]); }"),
    (COMBINED, "elements behind a row written", "if (at + i < count) { output[at + i] = static_cast<Out>(sums.lane[i]); }",
     "output[at + i] = static_cast<Out>(sums.lane[i]);"),
]

# The orders in which slices are taken, and the stack of their sums, likewise.
ORDER = "shardkit/policy/slice_order.hpp"
GRADIENTS = "shardkit/sharded/gradient_store.hpp"
SLICE = "return group * order.together * order.microbatches() + microbatch * order.together + place;"
JOIN = "elements_->sums.accumulate(stream, sum(at), sum(at - 1));"
ADDED_UP = "add_up(elements_->sums, summed(), slices ? subtotal(0) : addend(), target);"
SLICES = [
    (ORDER, "slices taken in turns of all ranks", SLICE, "return microbatch * order.ranks + rank;"),
    (ORDER, "slices taken in one run by each rank", SLICE, "return rank * order.microbatches() + microbatch;"),
    (ORDER, "every group takes the first one's slices", SLICE, "return microbatch * order.together + place;"),
    (ORDER, "ranks of a group take one slice", SLICE, "return group * order.together * order.microbatches() + microbatch * order.together;"),
    (ORDER, "ranks that reduce each microbatch take slices in one run", "return {policy.slices, dp, !each ? 1 : all ? dp : policy.shard_group};",
     "return {policy.slices, dp, 1};"),
    (ORDER, "ranks that reduce at the end take slices in turns", "return {policy.slices, dp, !each ? 1 : all ? dp : policy.shard_group};",
     "return {policy.slices, dp, policy.slices > dp ? dp : 1};"),
    (GRADIENTS, "the lowest level lost", "by.accumulate(stream, last, sum(--at));", "--at;"),
    *[(GRADIENTS, f"level {m} of the stack not joined", JOIN, f"if (carry.depth - at != {m}) {{ {JOIN} }}")
      for m in (1, 2, 3)],
    (GRADIENTS, "a level joined with the oldest sum", JOIN, "elements_->sums.accumulate(stream, sum(at), sum(0));"),
    (GRADIENTS, "unreduced sums put on the stack's bottom", "elements_->to_sums(stream, full(), sum(carry.depth));",
     "elements_->to_sums(stream, full(), sum(0));"),
    (GRADIENTS, "each slice written at the stack's bottom", "slice_ = slice_carry(step_->added).depth;", "slice_ = 0;"),
    (GRADIENTS, "the last slice reduced, not the sum", ADDED_UP,
     f"if (slices) {{ add_up(elements_->gradients, summed(), full(), target); }} else {{ {ADDED_UP} }}"),
    ("shardkit/machine/step_machine.hpp", "a slice begins with the one before it", "return rows.slices == 0 && keeps_gradients(its, rows);",
     "return keeps_gradients(its, rows);"),
]

# What gradients that are not zeroed and steps in backward are made of.
ENDED = "group.end_update(optimizer_->backward_->stated, frame_->choices(number), where);"
RELEASED = [
    (GRADIENTS, "padding that is not zeroed", "elements_->zero(stream, full().subspan(range.begin, range.size()));",
     "static_cast<void>(range);"),
    (GRADIENTS, "later microbatches overwrite", "overwrites_ = begins && overwrites && geometry_->overwritten_numel > 0;",
     "overwrites_ = overwrites && geometry_->overwritten_numel > 0;"),
    (GRADIENTS, "zeros that nobody writes", "overwrites_ = begins && overwrites && geometry_->overwritten_numel > 0;",
     "overwrites_ = begins && geometry_->overwritten_numel > 0;"),
    (GRADIENTS, "nothing is left unzeroed", "overwrites_ = begins && overwrites && geometry_->overwritten_numel > 0;",
     "overwrites_ = false;"),
    ("shardkit/sharded/element_table.hpp", "what is overwritten counted from the buffer's begin", "zeroed = p.range.end;", "static_cast<void>(p);"),
    ("shardkit/param/attributes.hpp", "frozen gradients that nobody writes", "return overwritten && !frozen;",
     "return overwritten;"),
    ("shardkit/machine/step_machine.hpp", "each microbatch begins a sum", "made.begins_sum = !adds_on(its, rows);",
     "made.begins_sum = true;"),
    ("shardkit/plan/step_counts.hpp", "sums that begin counted once", "sums_begun += applied.begins_sum ? times : 0;",
     "sums_begun += applied.begins_sum ? 1 : 0;"),
    ("shardkit/machine/step_machine.hpp", "sums that the reduction releases", "works_in(rows.sums_in_gradients, Role::gradients);",
     "static_cast<void>(rows);"),
    ("shardkit/schedule/slot_plan.hpp", "sums beside the gradients that take no memory",
     "if (applied.works_in_sums) { works_in(SlotUse::sums, 2, applied.takes_sums, rows.reduced_bytes); }", "static_cast<void>(0);"),
    ("shardkit/schedule/slot_plan.hpp", "reductions that release in the compute lane", "slots[slot].ends = schedule::lane_of(op.act);",
     "static_cast<void>(0);"),
    ("shardkit/machine/step_machine.hpp", "windows behind an update", "require(!its.updated, StepRule::windows_before_update);",
     "static_cast<void>(0);"),
    ("shardkit/schedule/passes.hpp", "updates that stay at the end",
     "schedule.move(i, detail::behind_group(schedule, i, schedule[i].group));", "static_cast<void>(i);"),
    ("shardkit/optim/optimizer_members.hpp", "updates that are not recorded",
     f"group.announce_update(where);\n        {ENDED}", ENDED),
    ("shardkit/checkpoint/checkpoint_plan.hpp", "codes without their scale",
     "metadata.emplace_back(concat(scale_mark, name), number_text(values.code_scale));", "static_cast<void>(name);"),
    ("shardkit/checkpoint/checkpoint_files.hpp", "scales that are not read", "of->*member = value;",
     "static_cast<void>(value);"),
]
RELEASED_EXPRESSIONS = [
    ("shardkit/checkpoint/checkpoint_files.hpp", "codes of any scale loaded", "if ([[given == scale]]) { return; }", "true"),
    ("shardkit/machine/group_description.hpp", "bytes that are trained", "require([[!types.opaque || p.frozen]], ", "true"),
]


# What the flight recorder, its files, deadlines on threads are made of, likewise.
RECORDER = "shardkit/comm/recorder.hpp"
RECORD_FILES = "shardkit/recorder/record_files.hpp"
STRAGGLERS = "who_is_missing/stragglers.hpp"
LATE = "shardkit/backend/threads/late_watch.hpp"
NO_MORE = "static_cast<void>(0);"
RECORDED = [
    (RECORDER, "a queued call that begins at once",
     "for_each_of(call, [](Slot& slot) { slot.begun.store(0, std::memory_order_relaxed); });", NO_MORE),
    (RECORDER, "a queued call that ends when it is given", "if (call.number != none) { queued_ = call.number + 1; }", NO_MORE),
    (RECORDER, "a call that fails stays open", "slot->done.store(failed, std::memory_order_relaxed);", NO_MORE),
    (RECORD_FILES, "an earlier run's trouble stays", "if (rank_ == 0) { std::remove(trouble().c_str()); }", NO_MORE),
    (RECORD_FILES, "an earlier run's record stays", "std::remove(recorder::record_file(prefix_, rank_).c_str());", NO_MORE),
    (LATE, "who waits is missing", "if (all || !shardkit::detail::any_that(waits_, is_of)) { late.push_back(rank); }",
     "late.push_back(rank);"),
    (LATE, "no word when the time is over", "if (options_.on_late) { options_.on_late(found.text); }", NO_MORE),
    (LATE, "no record on request", "if (std::exchange(asked_, asked) != asked) { write_all(states_.size(), \"asked for\"); }", NO_MORE),
    (LATE, "an earlier launch's record stays", "std::remove(recorder::record_file(options.record, rank).c_str());", NO_MORE),
]
RECORDED_EXPRESSIONS = [
    (RECORDER, "a send_receive's receive is not ended with it", "i < [[call.entries]];", "1U"),
    (RECORDER, "calls without their step", "call.where.line | [[std::uint64_t{step_} << 32U]]", "std::uint64_t{0}"),
    (RECORDER, "calls that have left the ring are changed",
     "return [[number != none && slot.number.load(std::memory_order_acquire) == number]] ? &slot", "true"),
    (RECORDER, "a call that was just given waits too long", "[[slot.given.load(std::memory_order_relaxed) <= when]]", "true"),
    (LATE, "a call behind others is entered", "return [[call.begun != 0]] &&", "true"),
    (RECORD_FILES, "the trouble of another run", "return read && [[run == run_]];", "true"),
    (LATE, "a call is entered by who had made the one before", "[[call.sequence >= collective.sequence]] &&",
     "call.sequence + 1 >= collective.sequence"),
    (LATE, "no warning", "[[!std::exchange(warned_, true)]]", "false"),
    (LATE, "a deadline that never passes in calls that all have entered", "over = [[passed(entering, 1)]];",
     "entering ? passed(true, 1) : 0"),
]


# What finds who lets the others wait, likewise.
SLOW = [
    (STRAGGLERS, "the step before lost calls is whole", "if (i > 0) { left_out_.insert(step); }", NO_MORE),
    (STRAGGLERS, "the step behind lost calls is whole", "left_out_.insert(call.step);", NO_MORE),
    (STRAGGLERS, "clocks by broadcasts", "if (a->signature.verb == sk::Verb::broadcast) { continue; }", NO_MORE),
]
SLOW_EXPRESSIONS = [
    (STRAGGLERS, "clocks of groups that do not meet rank 0", "[[offsets_[*base]]] + apart.second", "0.0"),
    (STRAGGLERS, "clocks as they are", "at - [[offsets_[key.members[m]]]]", "0.0"),
    (STRAGGLERS, "clocks of threads corrected", "one_clock_ && [[record.engine == \"threads\"]]", "false"),
    (STRAGGLERS, "a wait charged in full to each late rank", "[[static_cast<double>(i) / static_cast<double>(came.size() - i)]]", "1.0"),
    (STRAGGLERS, "the sum of the waits, not their mean", "[[each / others]] * 1e-9", "each"),
    (STRAGGLERS, "one late step names a rank", "const std::size_t quarter = [[shares.size() / 4]];", "shares.size() - 1"),
    (STRAGGLERS, "few steps name a rank", "if ([[shares.size() < least_steps]] ||", "shares.empty()"),
    (STRAGGLERS, "messages that are the first ones", "number = [[messages[{key, sends, call.step}]++]];", "0"),
]


# What gathers of 8-bit codes are made of, by statements and by expressions.
CODE_FORMATS = "shardkit/core/codes.hpp"
CODED = "shardkit/sharded/coded_parameters.hpp"
PARAMETERS = "shardkit/sharded/parameter_store.hpp"
STEP_MACHINE = "shardkit/machine/step_machine.hpp"
GROUPS = "shardkit/machine/group_description.hpp"
GATHERED_CODES = [
    (CODE_FORMATS, "a NaN that is hidden", "if (!is_finite(largest)) { return std::numeric_limits<float>::quiet_NaN(); }",
     "static_cast<void>(0);"),
    (STEP_MACHINE, "an update that leaves no magnitudes", "next.begun = rows.rests_begun();", "static_cast<void>(0);"),
    (STEP_MACHINE, "the masters read again for their magnitudes", "made.begun = its.begun;", "made.begun = false;"),
    (STEP_MACHINE, "codes made in every gather", "next.current = next.unused = next.coded = true;",
     "next.current = next.unused = true;"),
]
GATHERED_CODES_EXPRESSIONS = [
    (STEP_MACHINE, "codes of before an update", "next.coded = [[rows.rests_coded()]];", "its.coded"),
    (STEP_MACHINE, "codes of before a write", "[[its.current = its.unused = its.coded = its.begun = false]];",
     "its.current = its.unused = its.begun = false"),
    (STEP_MACHINE, "magnitudes of before a write", "[[its.current = its.unused = its.coded = its.begun = false]];",
     "its.current = its.unused = its.coded = false"),
    ("shardkit/backend/host/range_updates.hpp", "codes of the first masters alone",
     "scales};\n        for (std::size_t at = begin; [[at < end]];", "at < begin + 1"),
    ("shardkit/kernels/update.hpp", "a step that forgets where it is", "if ([[part.begin < begin]]) { part.begin = begin; }", "false"),
    (CODE_FORMATS, "codes that are cut off", "(magnitude + [[0x7'ffffU]] + (magnitude >> 20U & 1U)) >> 20U;", "0U"),
    (CODE_FORMATS, "ties to odd", "(magnitude + 0x7'ffffU + [[(magnitude >> 20U & 1U)]]) >> 20U;", "1U"),
    (CODE_FORMATS, "codes without a sign", "const std::uint32_t sign = [[word >> 24U & 0x80U]];", "0U"),
    (CODE_FORMATS, "codes beyond 448", "[[((bits & 0x7f'ffffU) > 0x60'0000U ? 1U : 0U)]];", "0U"),
    (CODED, "scales of one rank's own magnitudes", "for (std::size_t q = 0; [[q < ranks]]; ++q)", "q < 1"),
    (CODED, "magnitudes of a third level from the wrong place", "std::memcpy(&each, codes + [[k * distance]], sizeof each);",
     "k * coded_together"),
    (CODED, "magnitudes at the first rank's place", "largest.subspan([[group.shard_index * count]], count));", "0"),
    (PARAMETERS, "magnitudes read where a gather that failed has made codes",
     "[[step_->begun = false]];  // even where this fails", "false"),
    (PARAMETERS, "scales at the first rank's place", "scales_.span().subspan([[gathers_beside_ ? 0 : scale_number(geometry_->updated.begin)]]);",
     "0"),
    (PARAMETERS, "whole copies that a load leaves", "if ([[gathers_beside_ || coded()]]) { *step_ = written(*step_); }",
     "gathers_beside_"),
    ("shardkit/sharded/step_state.hpp", "first codes without scales",
     "(rows.find(Role::gathered) == nullptr && [[!rows.codes]]);", "true"),
    ("shardkit/machine/group_rows.hpp", "scales that no plan counts", "return element_bytes_of(row, group) + [[(has_scales ? group.scale_bytes(row.extent) : 0)]];",
     "0"),
    (GROUPS, "packed blocks", "require([[packing == Packing::aligned]],", "true"),
    (GROUPS, "masters elsewhere", "require([[group.offload == Offload::none]],", "true"),
    (GROUPS, "frozen codes", "require([[group.trainable]],", "true"),
]


# When the shard that stays behind windows is fetched, and what the sums of several microbatches are made of.
PLACED = [
    (STEP_MACHINE, "a kept shard that stays stale", "made.calls = rows.called_by(act, [[!its.coded]]);", "made.makes_codes"),
    (GRADIENTS, "no sum over replicas where groups are of one rank", "if ([[is_nothing(row)]]) { continue; }",
     "is_nothing(row) || comms_[Over::shards].size() == 1"),
    ("shardkit/layout/flat_layout.hpp", "shards aligned to each tensor's extent too", "shardkit::detail::shard_numel(total_, shards_, [[alignment_]]);",
     "alignment_ * numel"),
    (GRADIENTS, "the sum of one microbatch alone", "const bool adds = [[last != nullptr && last->when == When::later_microbatch]];", "false"),
]


# What comparisons of replicas and hashes over ranks are made of, by statements and by expressions.
REPLICAS = "shardkit/verify/verify_replicas.hpp"
HASHES = "shardkit/verify/hash_values.hpp"
HELD = "shardkit/sharded/buffer_digests.hpp"
ROWS_HELD = "shardkit/sharded/held_memory.hpp"
SPLIT_TOO = "if (!parameter.split_over_tp()) { axes.push_back(Tp::name); }"
HOLDERS = "ranks.copies([[extent]]);"
COMPARED = [
    (REPLICAS, "what tp does not split not compared over tp", SPLIT_TOO, "static_cast<void>(parameter);"),
    (REPLICAS, "what tp splits compared over tp", SPLIT_TOO, "axes.push_back(Tp::name);"),
    (REPLICAS, "items without their digests", "if (item.piece != none) { item.digest = digests[item.piece]; }",
     "static_cast<void>(item);"),
    (REPLICAS, "a set's hash without its items",
     "for (const Item& item : items_) { all[item.holders] = statement_hash(all[item.holders], item.digest); }",
     "static_cast<void>(where);"),
    (REPLICAS, "numbers that every rank holds not compared",
     "for (auto& [name, hash] : numbers) { comparison.add(std::move(name), hash); }",
     "static_cast<void>(where);"),
    (REPLICAS, "an optimizer's states not compared",
     "comparison.add(group, each);", "static_cast<void>(where);"),
    (HASHES, "elements counted by each rank that holds them", "piece.flat = intersect(piece.flat, group.range(counted));",
     "static_cast<void>(group);"),
    (HASHES, "elements counted by each replica",
     "if (piece.flat.empty() || group.replica(piece.parameter, counted) != 0) { continue; }",
     "if (piece.flat.empty()) { continue; }"),
    (HASHES, "the last rank's hash alone", "hashes_[i].hash += all[rank * mine.size() + i];",
     "hashes_[i].hash = all[rank * mine.size() + i];"),
    (HELD, "digests that do not know an element's place", "sum += element_digest(seed, number, bits);",
     "sum += element_digest(seed, 0, bits);"),
    (HELD, "the last lane's digest alone", "for (const std::uint64_t each : sums) { sum += each; }",
     "for (const std::uint64_t each : sums) { sum = each; }"),
    (ROWS_HELD, "stale copies compared", "if (copies != Copies::stale) { return part; }", "if (unit > 0) { return part; }"),
]
COMPARED_EXPRESSIONS = [
    (REPLICAS, "shards compared with each other", HOLDERS, "Extent::full"),
    (REPLICAS, "full copies not compared", HOLDERS, "Extent::shard"),
    (REPLICAS, "each rank compared with itself", "[[group_of(set, rank).color()]] * sets_.size() + set", "rank"),
    (REPLICAS, "half of the ranks is a majority", "wrong = [[2 * most->second > group.size()]]", "2 * most->second >= group.size()"),
    (HELD, "numbers in a part taken for those in the whole tensor",
     "[[contiguous ? begin + i * unit : part.whole_index(first + i * unit)]];", "begin + i * unit"),
    (HELD, "a part's first element taken for the tensor's", "begin = [[part.whole_index(0) + first]];", "first"),
]

# What faults on purpose are made of, by expressions.
FAULTY = "faults/faulty.hpp"
PLANS = "faults/fault_plan.hpp"
FAULTS = [
    (FAULTY, "faults of other ranks strike", "if ([[fault.rank == rank_]]) { waiting_.push_back(fault); }", "true"),
    (FAULTY, "calls not counted", "const std::uint64_t number = [[made_.calls++]];", "made_.calls"),
    (FAULTY, "buffers not counted", "const std::uint64_t number = [[made_.buffers++]];", "made_.buffers"),
    (FAULTY, "the first byte's bit flipped", "auto* const byte = [[delivered.at + bit / 8]];", "delivered.at"),
    (FAULTY, "nothing flipped", "*byte ^= [[mask]];", "std::byte{}"),
    (FAULTY, "a rank that leaves goes on",
     "if ([[fault.kind == FaultKind::leave || fault.kind == FaultKind::hang]]) {", "fault.kind == FaultKind::hang"),
    (FAULTY, "no memory in each buffer", "fault.kind != FaultKind::out_of_memory || [[fault.at != number]]", "false"),
    (PLANS, "every seed gives one plan", "std::uint64_t state = [[seed]];", "0 * seed"),
]


def split_arguments(text):
    arguments, depth, current = [], 0, ""
    for character in text:
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            arguments.append(current.strip())
            current = ""
        else:
            current += character
    return arguments + [current.strip()]


class Call:
    """A call of a reduction: where it stands in `text` with its semicolon, and its arguments.
    @raise SystemExit when it is written in another way than 'verb(communicator, op, ...);'"""

    def __init__(self, path, text, name):
        self.path, self.begin, self.in_place = path, name.start(), name["in_place"] is not None
        self.line = text.count("\n", 0, self.begin) + 1
        depth, end = 0, name.end()
        for end in range(name.end(), len(text)):
            depth += (text[end] in "([{") - (text[end] in ")]}")
            if depth == 0:
                break
        self.end = end + 2
        self.text = text[self.begin:self.end]
        if text[name.end()] != "(" or not self.text.endswith(");"):
            self.refuse("is no call that is a statement of its own")
        self.arguments = split_arguments(text[name.end() + 1:end])
        if len(self.arguments) < 3:
            self.refuse("has fewer than three arguments")
        self.axes, operation = self.arguments[:2]
        self.known_axes = {**AXES, **AXES_IN.get(path.name, {})}
        if self.axes not in self.known_axes:
            self.refuse(f"has unknown axes '{self.axes}'; add them to AXES")
        self.is_sum = SUM.fullmatch(operation) is not None
        if not self.is_sum and not OTHER.fullmatch(operation):
            self.refuse(f"has the unknown operation '{operation}'; add it to SUM or OTHER")

    def refuse(self, reason):
        sys.exit(f"{self.path.relative_to(ROOT)}:{self.line}: '{self.text}' {reason}")


def names_in(text):
    """Where a reduction is named in code, though not as a kind of call."""
    code = NO_CODE.sub(lambda match: " " * len(match[0]), text)
    return [name for name in VERB.finditer(code) if name["scope"] not in SPOKEN_OF]


def calls_in(path):
    """Every call of a reduction in a file."""
    text = path.read_text(encoding="utf-8")
    return [Call(path, text, name) for name in names_in(text)]


def sources_in(folder):
    return [path for path in sorted(folder.rglob("*")) if path.suffix in (".hpp", ".cpp", ".inc", ".cuh", ".cu")]


def mutants_of(site):
    """(name, replacement) of every mutant of one call."""
    call, arguments = site.text, site.arguments
    axes = site.axes
    yield "dropped", "static_cast<void>(0);"
    if not site.is_sum:
        pass
    elif site.in_place:
        yield "doubled", call + " " + call
    elif axes in ("tp", "cp_"):
        # Calling it again would give the same result, so the result is counted twice.
        yield "doubled", f"{call} for (auto& number : {arguments[3]}) {{ number += number; }}"
    else:
        target = arguments[4]
        yield "doubled", f"{call} elements_->sums.accumulate(stream, {target}, {target});"
    for other in site.known_axes[axes]:
        yield f"over {other}", call.replace(axes, other, 1)


class Mutant(typing.NamedTuple):
    """A piece of a source, and what stands there instead. Those of whole statements and expressions are compiled into one
    program; the others, which differ in types, are a program each."""
    where: str
    name: str
    path: pathlib.Path  # below the target's root
    begin: int
    end: int
    replacement: str
    kind: str  # "statement", "expression" or "program"


def with_all(text, mutants):
    """The source with numbered (number, mutant)s in it, of which the program runs the chosen one.
    @raise SystemExit when two of them overlap"""
    places = {}
    for number, mutant in mutants:
        places.setdefault((mutant.begin, mutant.end, mutant.kind), []).append((number, mutant.replacement))
    behind = len(text)
    for begin, end, kind in sorted(places, reverse=True):
        if end > behind:
            sys.exit(f"two mutants overlap at '{text[begin:end]}'")
        behind = begin
        if kind == "statement":
            cases = "".join(f"case {number}: {{ {replacement} }} break; " for number, replacement in places[begin, end, kind])
            chosen = f"switch (mutation::chosen()) {{ {cases}default: {{ {text[begin:end]} }} }}"
        else:
            cases = "".join(f"mutation::chosen() == {number} ? ({replacement}) : " for number, replacement in places[begin, end, kind])
            chosen = f"({cases}({text[begin:end]}))"
        text = text[:begin] + chosen + text[end:]
    return text


def compile_command(compiler, folder):
    """How mutants are compiled. The standard headers that the library includes are read once for all of them."""
    names = {name for header in (ROOT / "include").rglob("*.hpp")
             for name in STANDARD.findall(header.read_text(encoding="utf-8"))}
    standard = pathlib.Path(folder) / "standard.hpp"
    standard.write_text("\n".join(sorted(names)) + "\n" + CHOSEN, encoding="utf-8")
    subprocess.run([compiler, *FLAGS, "-x", "c++-header", str(standard), "-o", f"{standard}.gch"], check=True)
    return [compiler, *FLAGS, "-include", str(standard)]


class Target:
    """Headers below `root` that are mutated, the placement table's rows (those of "scales") with them where it is there, and the program that must
    notice."""

    launch = ()  # what starts the program

    def __init__(self, name, root, folders, killer, sources=(), flags=(), has_table=False, texts=(), statements=(),
                 expressions=()):
        self.name, self.root, self.folders, self.killer = name, root, folders, killer
        self.has_table, self.texts, self.statements, self.expressions = has_table, texts, statements, expressions
        self.sources, self.flags = [str(source) for source in sources], list(flags)

    def mutants(self):
        for folder in self.folders:
            for source in sources_in(self.root / folder):
                for site in calls_in(source):
                    where = f"{source.relative_to(ROOT)}:{site.line}"
                    for name, replacement in mutants_of(site):
                        yield Mutant(where, name, source.relative_to(self.root), site.begin, site.end, replacement, "statement")
        if self.root == EXAMPLES and self.folders:
            yield from self.made_mutants()
        yield from self.text_mutants()
        yield from self.statement_mutants()
        yield from self.expression_mutants()
        if self.has_table:
            yield from self.row_mutants()

    def row_mutants(self):
        text = self.original(TABLE)
        if len(ROW.findall(text)) != text.count("collective("):
            sys.exit(f"{TABLE}: a row is not written as 'table.add(collective(..., Over::..., ...));'")
        for row in ROW.finditer(text):
            if ("Extent::scales" in row[0]) != (self.has_table == "scales"):  # which groups of codes alone have
                continue
            where = f"include/{TABLE}:{text.count(chr(10), 0, row.start()) + 1}"
            if row["over"] not in WRONG_OVER:
                sys.exit(f"{where}: unknown ranks '{row['over']}'; add them to WRONG_OVER")
            begin, end = row.start("over") - row.start(), row.end("over") - row.start()
            mutants = [("row dropped", "static_cast<void>(0);")]
            mutants += [(f"row over {other}", row[0][:begin] + other + row[0][end:])
                        for other in WRONG_OVER[row["over"]]]
            for name, replacement in mutants:
                yield Mutant(where, name, pathlib.Path(TABLE), row.start(), row.end(), replacement, "statement")

    def made_mutants(self):
        for header in sorted((TRAINER / "program").glob("*.hpp")):
            text = header.read_text(encoding="utf-8")
            for match in MADE.finditer(text):
                if match["axes"] not in WRONG:
                    sys.exit(f"unknown axes '{match['axes']}' in {header}; add them to WRONG")
                line = text.count("\n", 0, match.start()) + 1
                for wrong in WRONG[match["axes"]]:
                    yield Mutant(f"{header.relative_to(ROOT)}:{line}", f"{match['axes']} made over {wrong}",
                                 header.relative_to(self.root), match.start(), match.end(),
                                 match[0].replace(f"<{match['axes']}>", f"<{wrong}>"), "expression")

    def text_mutants(self):
        for file, name, pattern, replacement in self.texts:
            text = (self.root / file).read_text(encoding="utf-8")
            mutated, count = re.subn(pattern, replacement, text)
            if count == 0:
                sys.exit(f"nothing like {pattern} in {file}")
            yield Mutant(str((self.root / file).relative_to(ROOT)), name, pathlib.Path(file), 0, len(text), mutated, "program")

    def statement_mutants(self):
        for file, name, statement, replacement in self.statements:
            text = self.original(file)
            if text.count(statement) != 1:
                sys.exit(f"{text.count(statement)} times '{statement}' in {file}, expected once")
            begin = text.index(statement)
            where = f"{(self.root / file).relative_to(ROOT)}:{text.count(chr(10), 0, begin) + 1}"
            yield Mutant(where, name, pathlib.Path(file), begin, begin + len(statement), replacement, "statement")

    def expression_mutants(self):
        for file, name, quoted, replacement in self.expressions:
            text = self.original(file)
            before, expression, behind = re.split(r"\[\[|\]\](?!\])", quoted)
            around = before + expression + behind
            if text.count(around) != 1:
                sys.exit(f"{text.count(around)} times '{around}' in {file}, expected once")
            begin = text.index(around) + len(before)
            where = f"{(self.root / file).relative_to(ROOT)}:{text.count(chr(10), 0, begin) + 1}"
            yield Mutant(where, name, pathlib.Path(file), begin, begin + len(expression), replacement, "expression")

    def build(self, command, folder, texts):
        """The program over a tree in which the files of `texts` (by path below the root) read so.
        @return the program, and the compiler's first complaint if there is none"""
        # Quoted includes look beside the including file first, so a mutant brings its neighbours along.
        tree, program = pathlib.Path(folder) / "tree", pathlib.Path(folder) / "killer"
        shutil.copytree(self.root, tree)
        for path, text in texts.items():
            (tree / path).write_text(text, encoding="utf-8")
        built = subprocess.run([*command, f"-I{tree}", f"-I{ROOT / 'include'}", str(HERE / self.killer), *self.sources,
                                "-o", str(program), *self.flags], capture_output=True, text=True, check=False)
        if built.returncode == 0:
            return program, None
        errors = [line for line in built.stderr.splitlines() if "error" in line]
        return None, (errors or ["failed"])[0].strip()

    def original(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def build_all(self, command, folder, mutants):
        """One program with all these mutants, which are numbered from 1."""
        by_path = {}
        for number, mutant in enumerate(mutants, 1):
            by_path.setdefault(mutant.path, []).append((number, mutant))
        program, complaint = self.build(command, folder, {path: with_all(self.original(path), these)
                                                          for path, these in by_path.items()})
        if complaint:
            sys.exit(f"{self.killer} does not compile with its mutants: {complaint}")
        return program

    def try_alone(self, command, mutant):
        """What stopped a mutant that is a program of its own; None when nothing did."""
        text = self.original(mutant.path)
        with tempfile.TemporaryDirectory() as folder:
            program, complaint = self.build(command, folder, {
                mutant.path: text[:mutant.begin] + mutant.replacement + text[mutant.end:]})
            return f"{NOT_BUILT}{complaint}" if complaint else self.stopped_by(program, 0)

    def stopped_by(self, program, number):
        """None when the program passes with that mutant, else what stopped it."""
        return stopped_by([*self.launch, str(program)], number)


def stopped_by(command, number):
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120,
                             env={**os.environ, "SHARDKIT_MUTANT": str(number)})
    except subprocess.TimeoutExpired:
        return "time limit"
    return None if ran.returncode == 0 else (ran.stdout.strip().splitlines() or [f"status {ran.returncode}"])[-1]


def package_flags(kind, package):
    return subprocess.run(["pkg-config", kind, package], check=True, capture_output=True, text=True).stdout.split()


def check_sites(targets):
    """Every call of the library and of the trainer lies in a target's folder."""
    covered = [target.root / folder for target in targets for folder in target.folders]
    covered += [ROOT / "include/shardkit" / folder for folder in VERBS_MADE]
    for source in [*sources_in(ROOT / "include"), *sources_in(TRAINER)]:
        text = source.read_text(encoding="utf-8")
        if any(text[name.end()] == "(" for name in names_in(text)) and not set(covered) & set(source.parents):
            sys.exit(f"{source.relative_to(ROOT)} reduces over ranks, and lies in no folder of a target")


def begin(target, command, pool, folder):
    """Begins to build what a target's mutants run in.
    @return those that are one program, that program, and each of the others with what stopped it; from the pool"""
    mutants = list(target.mutants())
    if not mutants:
        sys.exit(f"nothing to mutate was found below {target.root}")
    together = [mutant for mutant in mutants if mutant.kind != "program"]
    alone = [mutant for mutant in mutants if mutant.kind == "program"]
    program = pool.submit(target.build_all, command, folder, together)
    return together, program, [(mutant, pool.submit(target.try_alone, command, mutant)) for mutant in alone]


def results_of(target, together, program, alone, pool):
    """Every mutant of a target that was begun, and what stopped it."""
    built = program.result()
    reason = target.stopped_by(built, 0)
    if reason is not None:
        sys.exit(f"{target.killer} fails without a mutant: {reason}")
    yield from zip(together, pool.map(lambda number: target.stopped_by(built, number), range(1, len(together) + 1)))
    yield from ((mutant, tried.result()) for mutant, tried in alone)

# What experts are made of: the mistakes that others made with them, by statements and by expressions.
DESCRIBED = "shardkit/machine/group_description.hpp"
GROUP = "shardkit/sharded/group_members.hpp"
GEOMETRY = "shardkit/sharded/group_geometry.hpp"
PART = "shardkit/param/tensor_part.hpp"
MESHES = "shardkit/policy/group_mesh.hpp"
ASSIGNMENT = "shardkit/expert_parallel/assignment.hpp"
ROWS_OF_TOKENS = "shardkit/expert_parallel/token_rows.hpp"
TOKENS = "shardkit/expert_parallel/token_exchange.hpp"
ADDS = "if (adds) { accumulate(last->target, applied.carry, stream); }"
SENT = """all_to_all_uneven(ranks_, from, std::span<const std::size_t>(sent), to,
                          std::span<const std::size_t>(received), rank_->compute_stream(), where);"""
FORGOTTEN = """throw_usage_error(where, "'", path,
                              "': reduce() before any gradient was added; call add, add_zero or skip");"""
# The ranks that have the same experts.
ONE_EXPERTS_RANKS = """[&]() -> const Communicator& {
    for (Group& group : spi::groups(groups, where)) {
        if (group.geometry().experts) { return group.communicators().data; }
    }
    return rank.world();
}()"""
EXPERTS = [
    (ROWS_OF_TOKENS, "padding left as it was", "to[j] = T{};", "static_cast<void>(j);"),
    (PART, "local numbers of experts that begin at 0", "part.begin_ = span() * index;", "part.begin_ = 0 * index;"),
    (GRADIENTS, "parts of the ranks that share experts lost", "join_sources(stream);", "static_cast<void>(stream);"),
    (GRADIENTS, "parts of the ranks that share experts added in turn", "join_sources(stream);",
     "for (std::size_t s = 1; s < geometry_->sources(); ++s) { elements_->sums.accumulate(stream, of_source(s), of_source(0)); }"),
    (GRADIENTS, "microbatches counted twice where one rank has an expert", ADDS,
     f"{ADDS} if (adds && comms_[Over::data].size() == 1) {{ accumulate(last->target, applied.carry, stream); }}"),
    (TOKENS, "a rank without rows that skips an exchange", SENT, f"if (from.empty() && to.empty()) {{ return; }} {SENT}"),
    ("shardkit/sharded/step_state.hpp", "a rank without tokens that skips the sums of all", FORGOTTEN, "its_.skipped = true; return;"),
]
EXPERT_EXPRESSIONS = [
    (DESCRIBED, "a mean over ep_dp alone", "return [[shards * replicas * ep]];", "shards * replicas"),
    (DESCRIBED, "a factor lost where one rank has an expert", "return [[shards * replicas * ep]];",
     "shards * replicas == 1 ? 1 : shards * replicas * ep"),
    (GRADIENTS, "a rank whose shard has no element that skips a sum", "if ([[is_nothing(row)]]) { continue; }",
     "is_nothing(row) || geometry_->own.begin >= geometry_->parameters[geometry_->parameters.size() - 1].range.end"),
    ("shardkit/optim/norm.hpp", "a norm over the ranks of one expert", "all_reduce_span([[rank.world()]], TreelessOp(squares ?", ONE_EXPERTS_RANKS),
    (GROUP, "replicas in the norm", "const bool counts = [[geometry_.table.reduced == Extent::piece || geometry_.replica_index == 0]];", "true"),
    ("shardkit/reshard/reshard_run.hpp", "moments of before a reshard", "options.states = [[options_.states]];", "false"),
    (GEOMETRY, "slices that do not know ep", "return [[(replica_index * shards + shard_index) * ep + ep_index]];",
     "replica_index * shards + shard_index"),
    (MESHES, "experts reduced over all data ranks", "data_([[experts ? AxisNames(ExpertDataAxes{}) : AxisNames(DataAxes{})]])",
     "experts ? AxisNames(Axes<DpReplicate, EpDp, Ep>{}) : AxisNames(DataAxes{})"),
    (GROUP, "blocks of a norm that go over an expert's end", "most = [[std::gcd(expert, alignment)]];", "counted.size()"),
    ("shardkit/muon/matrix_placement.hpp", "an expert's matrix taken from ranks that have another one",
     "return [[of.ep == holders(of).ep(rank)]] &&", "true"),
    (ASSIGNMENT, "a capacity that nobody keeps", "row_of_[c] = [[row < end]] ?", "true"),
    ("shardkit/step/divisor.hpp", "a second loss's factor upside down", "return other_ == 0 ? 1 : [[n_ / other_]];", "other_ / n_"),
]


def report(targets, options):
    """Tries every mutant of the targets; the exit status."""
    tried = survivors = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, tempfile.TemporaryDirectory() as shared:
        command = compile_command(options.compiler, shared)
        # A program takes one core to compile: others compile or run meanwhile.
        begun = [(target, *begin(target, command, pool, pathlib.Path(shared, target.name))) for target in targets]
        for target, *parts in begun:
            for mutant, reason in results_of(target, *parts, pool):
                not_built = reason is not None and reason.startswith(NOT_BUILT)
                tried += 1
                survivors += reason is None or not_built
                verdict = "SURVIVED" if reason is None else "NO MUTANT" if not_built else "killed by"
                print(f"{mutant.where}: {mutant.name}: {verdict} {reason or ''}", flush=True)
    print(f"{tried} mutants, {survivors} survived or did not compile")
    return 1 if survivors else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target",
                        help="library, optimizers, rounding, matrices, states, exact, tree, replicas, released, recorder, slow, codes, experts, slices, layers or trainer; all of them if not given")
    options = parser.parse_args()
    trainer = ([TRAINER / "allocation_counter.cpp", EXAMPLES / "common/openblas.cpp", TRAINER / "program/encoding.cpp"],
               [f"-I{EXAMPLES}", *package_flags("--cflags", "openblas"), *package_flags("--libs", "openblas")])
    targets = [
        Target("library", ROOT / "include", ["shardkit/sharded", "shardkit/optim", "shardkit/mesh", "shardkit/rank", "shardkit/factored", "shardkit/verify"],
               "killer.cpp",
               has_table=True, expressions=PLACED),
        Target("optimizers", ROOT / "include", [], "optimizer_killer.cpp", expressions=ARITHMETIC),
        Target("rounding", ROOT / "include", [], "rounding_killer.cpp", statements=ROUNDING),
        Target("matrices", ROOT / "include", [], "matrix_killer.cpp", flags=["-pthread"], statements=MATRIX_STATEMENTS,
               expressions=MATRIX_EXPRESSIONS),
        Target("states", ROOT / "include", [], "states_killer.cpp", statements=STATES, expressions=CODES),
        Target("exact", ROOT / "include", [], "exact_killer.cpp", statements=EXACT),
        Target("tree", ROOT / "include", [], "tree_killer.cpp", statements=TREE),
        Target("replicas", ROOT / "include", [], "replicas_killer.cpp", statements=COMPARED,
               expressions=COMPARED_EXPRESSIONS),
        Target("released", ROOT / "include", [], "released_killer.cpp", flags=["-pthread", f"-I{ROOT / 'tests'}"], statements=RELEASED,
               expressions=RELEASED_EXPRESSIONS),
        Target("recorder", ROOT / "include", [], "recorder_killer.cpp", flags=["-pthread", f"-I{ROOT / 'tests'}", f"-I{ROOT / 'subprojects/doctest'}"],
               statements=RECORDED, expressions=RECORDED_EXPRESSIONS),
        Target("slow", EXAMPLES, [], "slow_killer.cpp", flags=[f"-I{ROOT / 'tests'}", f"-I{ROOT / 'subprojects/doctest'}"],
               statements=SLOW, expressions=SLOW_EXPRESSIONS),
        Target("codes", ROOT / "include", [], "codes_killer.cpp", flags=["-pthread", f"-I{ROOT / 'tests'}"], has_table="scales",
               statements=GATHERED_CODES, expressions=GATHERED_CODES_EXPRESSIONS),
        Target("experts", ROOT / "include", [], "experts_killer.cpp",
               flags=["-pthread", f"-I{ROOT / 'tests'}", f"-I{ROOT / 'subprojects/doctest'}"], statements=EXPERTS,
               expressions=EXPERT_EXPRESSIONS),
        Target("faults", ROOT / "tests", [], "faults_killer.cpp", expressions=FAULTS),
        Target("slices", ROOT / "include", [], "slices_killer.cpp", flags=["-pthread"], statements=SLICES),
        Target("layers", ROOT / "include", ["shardkit/tensor_parallel", "shardkit/context_parallel"],
               "trainer_killer.cpp", *trainer),
        Target("trainer", EXAMPLES, ["train_gpt/program"], "trainer_killer.cpp", *trainer, texts=TYPED, statements=ADDED_STATEMENTS, expressions=ADDED),
    ]
    check_sites(targets)
    chosen = [target for target in targets if options.target in (None, target.name)]
    if not chosen:
        parser.error(f"--target {options.target}: expected one of {', '.join(target.name for target in targets)}")
    sys.exit(report(chosen, options))


if __name__ == "__main__":
    main()
