// SPDX-License-Identifier: Apache-2.0
#include "clique.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "state.hpp"

namespace standin {
namespace {

std::string describe(const Signature& signature, int rank) {
    std::ostringstream text;
    text << "rank " << rank << " called " << name(signature.kind) << " (count " << signature.count << ", type "
         << signature.type << ", op " << signature.op << ", root " << signature.root << ")";
    return text.str();
}

bool agree(const Signature& a, const Signature& b, bool collective) {
    return collective ? a == b : a.count == b.count && a.type == b.type;
}

/// Completes the part when all parties can be brought to it.
bool complete(State& s, const Batch::Part& part) {
    Rendezvous& rendezvous = *part.rendezvous;
    Clique& clique = *part.clique;
    for (const auto& party : rendezvous.parties) {
        if (!party.launched || rendezvous.mixed) { return rendezvous.done; }
    }
    for (const auto& party : rendezvous.parties) {
        // Runs the peer's stream up to this communication; the last one there may complete it on the way.
        if (!party.arrived) { advance(s, *party.mark); }
        if (rendezvous.done) { return true; }
    }
    for (const auto& party : rendezvous.parties) {
        if (!party.arrived || stuck(s, clique, party.rank)) { return false; }
    }
    move_data(rendezvous, s.same_bits);
    rendezvous.done = true;
    s.dirty = true;
    clique.open.erase(rendezvous.key);
    return true;
}

}  // namespace

const char* name(Kind kind) {
    switch (kind) {
        case Kind::all_gather:
            return "ncclAllGather";
        case Kind::reduce_scatter:
            return "ncclReduceScatter";
        case Kind::all_reduce:
            return "ncclAllReduce";
        case Kind::broadcast:
            return "ncclBroadcast";
        case Kind::send:
            return "ncclSend";
        case Kind::receive:
            return "ncclRecv";
    }
    return "";
}

bool stuck(const State& s, Clique& clique, int rank) {
    const Clique::Member& member = clique.member(rank);
    return member.killed || member.left || member.error != ncclSuccess || member.proxy_error != ncclSuccess ||
           s.is_broken(member.device);
}

void fail_all(State& s, Clique& clique, ncclResult_t code, const std::string& text) {
    for (Clique::Member& member : clique.members) {
        if (member.error != ncclSuccess) { continue; }
        member.error = code;
        member.text = text;
    }
    s.dirty = true;
}

namespace {

/// A kernel starts: it must fit beside those of other communicators that wait for their peers, unless NCCL orders its
/// launches.
void start(State& s, const Batch::Part& part, int rank, const std::shared_ptr<Mark>& mark) {
    const int device = part.clique->member(rank).device;
    const auto at = std::find_if(s.comms.all().begin(), s.comms.all().end(),
                                 [&](const auto& comm) { return comm->clique == part.clique && comm->rank == rank; });
    if (at == s.comms.all().end()) { return; }
    const int said = (*at)->config.maxCTAs;
    const int ctas = said != NCCL_CONFIG_UNDEF_INT ? said : s.nccl_version < 22200 ? 32 : 64;
    s.resident.erase(
        std::remove_if(s.resident.begin(), s.resident.end(), [](const Resident& each) { return each.mark->done; }),
        s.resident.end());
    int all = ctas;
    std::set<std::uint64_t> others{part.clique->id};
    for (const Resident& each : s.resident) {
        if (each.device == device && others.insert(each.clique).second) { all += each.ctas; }
    }
    s.resident.push_back({device, part.clique->id, ctas, mark});
    if (all <= s.multiprocessors || others.size() == 1 || s.launches_in_order.value_or(false)) { return; }
    s.crowded.push_back("device " + std::to_string(device) + ": kernels of " + std::to_string(others.size()) +
                        " communicators with " + std::to_string(all) + " CTAs wait for peers at once on " +
                        std::to_string(s.multiprocessors) + " SMs");
}

}  // namespace

bool Batch::run(State& s) {
    const bool left = std::all_of(parts.begin(), parts.end(), [](const Part& part) {
        return part.clique->member(part.rendezvous->parties[part.party].rank).left;
    });
    while (!left && !after.empty()) {
        if (!advance(s, *after.back())) { return false; }
        after.pop_back();
    }
    bool all = true;
    for (const Part& part : parts) {
        auto& party = part.rendezvous->parties[part.party];
        if (part.clique->member(party.rank).left || party.arrived || stuck(s, *part.clique, party.rank)) { continue; }
        party.arrived = true;
        s.dirty = true;
        start(s, part, party.rank, mark);
    }
    for (const Part& part : parts) {
        const int rank = part.rendezvous->parties[part.party].rank;
        if (part.clique->member(rank).left || part.rendezvous->done) { continue; }
        if (stuck(s, *part.clique, rank) || !complete(s, part)) { all = false; }
    }
    return all;
}

bool Batch::uses(const Range& range) const {
    return std::any_of(parts.begin(), parts.end(), [&](const Part& part) {
        const Rendezvous& rendezvous = *part.rendezvous;
        const auto& party = rendezvous.parties[part.party];
        const auto used = ranges(rendezvous.signature, rendezvous.parties.size(),
                                 rendezvous.signature.root == party.rank, party.send, party.receive);
        return std::any_of(used.begin(), used.end(), [&](const Range& each) { return each.overlaps(range); });
    });
}

Batch::Part enter(State& s, const Request& request, const std::shared_ptr<Mark>& mark) {
    Clique& clique = *request.clique;
    const Signature& signature = request.signature;
    const bool is_send = signature.kind == Kind::send;
    const bool collective = !is_send && signature.kind != Kind::receive;
    Key key;
    std::size_t index = static_cast<std::size_t>(request.rank);
    if (collective) {
        key.index = clique.member(request.rank).collectives++;
    } else {
        key.from = is_send ? request.rank : request.peer;
        key.to = is_send ? request.peer : request.rank;
        key.index = (is_send ? clique.sends : clique.receives)[{key.from, key.to}]++;
        index = is_send ? 0 : 1;
    }
    auto& rendezvous = clique.open[key];
    if (!rendezvous) {
        rendezvous = std::make_shared<Rendezvous>();
        rendezvous->key = key;
        rendezvous->signature = signature;
        rendezvous->parties.resize(collective ? clique.members.size() : 2);
    } else if (!agree(rendezvous->signature, signature, collective) && !s.compares_calls) {
        rendezvous->mixed = true;
    } else if (!agree(rendezvous->signature, signature, collective)) {
        const auto other = std::find_if(rendezvous->parties.begin(), rendezvous->parties.end(),
                                        [](const auto& party) { return party.launched; });
        fail_all(s, clique, ncclInvalidUsage,
                 describe(signature, request.rank) + ", " + describe(rendezvous->signature, other->rank));
    }
    for (const auto& party : rendezvous->parties) {
        if (!collective || !party.launched || party.places == request.places) { continue; }
        s.uneven_windows.push_back(std::string(name(signature.kind)) + ": the buffers of ranks " +
                                   std::to_string(party.rank) + " and " + std::to_string(request.rank) +
                                   " lie at different places of their symmetric windows");
        break;
    }
    rendezvous->parties[index] = {request.rank, true, false, request.send, request.receive, mark, request.places};
    return {request.clique, rendezvous, index};
}

}  // namespace standin
