// SPDX-License-Identifier: Apache-2.0
#include "launch_order.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

namespace standin {
namespace {

std::string describe(const LaunchOrder::Entry& entry) {
    std::ostringstream text;
    if (entry.key.collective()) {
        text << name(entry.signature.kind) << " number " << entry.key.index;
    } else {
        text << "message number " << entry.key.index << " from rank " << entry.key.from << " to rank "
             << entry.key.to;
    }
    text << " of communicator " << entry.clique->id;
    return text.str();
}

}  // namespace

void LaunchOrder::launched(int device, const std::vector<Entry>& group) {
    ++position_;
    std::map<int, std::vector<Pending>> by_peer;
    for (const Entry& entry : group) {
        const std::set<int> peers(entry.devices.begin(), entry.devices.end());
        for (const int peer : peers) {
            if (peer != device) {
                by_peer[peer].push_back({entry.clique->id, entry.key, position_, describe(entry), false});
            }
        }
    }
    for (auto& [peer, entries] : by_peer) { compare(device, peer, std::move(entries)); }
}

// What the peer launched earlier than anything of this group, but this device has not launched yet, this device will
// launch later: an inversion, known before it has happened.
void LaunchOrder::compare(int device, int peer, std::vector<Pending> group) {
    Pair& pair = pairs_[{std::min(device, peer), std::max(device, peer)}];
    auto& mine = device < peer ? pair.by_lower : pair.by_higher;
    auto& theirs = device < peer ? pair.by_higher : pair.by_lower;
    std::optional<Pending> last;  // of the group's communications, what the peer launched last
    std::vector<Pending> ahead;   // what the peer has not launched
    for (Pending& each : group) {
        const auto at = std::find_if(theirs.begin(), theirs.end(), [&](const Pending& other) {
            return other.clique == each.clique && other.key == each.key;
        });
        if (at == theirs.end()) {
            ahead.push_back(std::move(each));
            continue;
        }
        if (!last || at->position > last->position) { last = *at; }
        theirs.erase(at);
    }
    for (Pending& skipped : theirs) {
        if (skipped.reported) { continue; }
        if (last && !last->reported && skipped.position < last->position) {
            report(device, peer, last->name, skipped.name);
            skipped.reported = true;
        } else if (!ahead.empty()) {
            report(device, peer, ahead.front().name, skipped.name);
            skipped.reported = true;
            for (Pending& each : ahead) { each.reported = true; }
        }
    }
    mine.insert(mine.end(), ahead.begin(), ahead.end());
}

void LaunchOrder::report(int device, int peer, const std::string& first, const std::string& second) {
    std::ostringstream text;
    text << "device " << device << " launched " << first << " before " << second << ", device " << peer
         << " the other way round";
    violations_.push_back(text.str());
}

void LaunchOrder::forget(const Clique& clique, int device) {
    for (auto& [devices, pair] : pairs_) {
        if (devices.first != device && devices.second != device) { continue; }
        for (auto* const list : {&pair.by_lower, &pair.by_higher}) {
            list->erase(std::remove_if(list->begin(), list->end(),
                                       [&](const Pending& each) { return each.clique == clique.id; }),
                        list->end());
        }
    }
}

}  // namespace standin
