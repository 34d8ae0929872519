#include "cc/rdma_model/topology_text.h"

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "cc/rdma_model/fault_grammar.h"
#include "cc/rdma_model/topology_draft.h"

namespace railhop::rdma {
namespace {

constexpr std::string_view kSpace = " \t\r";

// A word as an error shows it: printable, and not endless.
std::string Readable(std::string_view word) {
  constexpr size_t kMost = 100;
  std::string text;
  for (const char c : word.substr(0, kMost)) text += c >= 0x20 && c < 0x7f ? c : '?';
  return text + (word.size() > kMost ? "..." : "");
}

// "0000:17:00.0". Not sscanf, which takes signs and 0x.
bool IsPciAddress(std::string_view text) {
  constexpr std::string_view kShape = "xxxx:xx:xx.x";
  if (text.size() != kShape.size() || text.back() > '7') return false;
  for (size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] == 'x' ? std::isxdigit(static_cast<unsigned char>(text[i])) == 0
                         : text[i] != kShape[i]) {
      return false;
    }
  }
  return true;
}

// The parser keeps the first error and from then on does nothing.
class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  std::optional<Topology> Run(std::string* error) {
    while (!text_.empty() && error_.empty()) {
      ++line_;
      const size_t end = text_.find('\n');
      ReadLine(text_.substr(0, end));
      text_ = end == std::string_view::npos ? std::string_view() : text_.substr(end + 1);
    }
    if (error_.empty()) {
      const std::optional<TopologyError> wrong = FinishTopology(drafts_, &topology_);
      if (wrong) Fail(wrong->line, wrong->word, wrong->message, wrong->allowed);
    }
    if (error_.empty()) return std::move(topology_);
    *error = error_;
    return std::nullopt;
  }

 private:
  enum class Scope { kTop, kHost, kDevice, kPort };
  struct Word {
    const char* name;
    Scope scope;
    const char* values;  // what the values are, for errors
    void (Parser::*read)();
  };
  static const std::vector<Word>& Words();

  // --- Words of the line ---
  void ReadLine(std::string_view line) {
    line = line.substr(0, line.find('#'));
    words_.clear();
    while (true) {
      const size_t begin = line.find_first_not_of(kSpace);
      if (begin == std::string_view::npos) break;
      const size_t end = line.find_first_of(kSpace, begin);
      words_.emplace_back(line.substr(begin, end - begin));
      if (end == std::string_view::npos) break;
      line = line.substr(end);
    }
    next_ = 0;
    while (next_ < words_.size() && error_.empty()) ReadStatement();
  }

  void ReadStatement();

  void Fail(int line, std::string_view word, const std::string& message,
            const std::string& allowed = "") {
    if (!error_.empty()) return;
    error_ = std::string(file_) + ":" + std::to_string(line) + ": " + Readable(word) + ": " +
             message + (allowed.empty() ? "" : "; allowed: " + allowed);
  }
  void Fail(std::string_view word, const std::string& message, const std::string& allowed = "") {
    Fail(line_, word, message, allowed);
  }

  // The next value of the statement; empty and an error if the line ends first.
  std::string Take() {
    if (next_ >= words_.size()) {
      Fail(statement_->name, "a value is missing", statement_->values);
      return "";
    }
    return words_[next_++];
  }

  // `besides` is what else is allowed, for the message.
  uint64_t TakeNumber(uint64_t min, uint64_t max, int base = 0, const char* besides = "") {
    const std::string word = Take();
    if (!error_.empty()) return min;
    char* end = nullptr;
    errno = 0;
    const uint64_t value = std::strtoull(word.c_str(), &end, base);
    const bool is_number =
        word[0] >= '0' && word[0] <= '9' && errno == 0 && end == word.c_str() + word.size();
    if (!is_number || value < min || value > max) {
      Fail(word, std::string("not a value of ") + statement_->name,
           std::string(besides) + "a number from " + std::to_string(min) + " to " +
               std::to_string(max));
      return min;
    }
    return value;
  }

  uint64_t TakeGuid() {
    const std::string word = Take();
    if (!error_.empty()) return 0;
    std::string digits = word.rfind("0x", 0) == 0 ? word.substr(2) : word;
    std::erase(digits, ':');
    if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) {
      Fail(word, "not a GUID", "16 hexadecimal digits, as 0002:c903:00a1:b2c3");
      return 0;
    }
    return std::strtoull(digits.c_str(), nullptr, 16);
  }

  std::string TakeName(size_t max, std::string_view extra = "") {
    const std::string word = Take();
    for (const char c : word) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
      if (!plain && extra.find(c) == std::string_view::npos) {
        Fail(word, "not a name", "letters, digits, '_', '-' and '.'");
      }
    }
    if (word.size() > max) Fail(word, "too long", "up to " + std::to_string(max) + " characters");
    return word;
  }

  Gid TakeAddress() {
    const std::string word = Take();
    const std::optional<Gid> gid = ParseAddress(word);
    if (!gid || IsEmpty(*gid)) {
      Fail(word, "not an address", "an IPv4 address as 10.0.0.1 or an IPv6 address as fd00::1");
      return Gid{};
    }
    return *gid;
  }

  int TakeNet() {
    const std::string word = Take();
    if (!error_.empty()) return 0;
    for (size_t i = 0; i < topology_.nets.size(); ++i) {
      if (topology_.nets[i] == word) return static_cast<int>(i);
    }
    Fail(word, "no such net", JoinWords(topology_.nets, "none; name it in a 'nets' line above"));
    return 0;
  }

  uint32_t TakeMtu() {
    const uint64_t bytes = TakeNumber(0, 1u << 20);
    for (uint32_t code = 1; code <= 5; ++code) {
      if (MtuBytes(code) == bytes) return code;
    }
    Fail(std::to_string(bytes), "not an MTU", "256, 512, 1024, 2048, 4096");
    return 1;
  }

  TopologyDevice& Device() { return topology_.devices.back(); }
  TopologyPort& Port() { return Device().ports.back(); }
  DeviceDraft& Draft() { return drafts_.back(); }
  PortDraft& DraftPort() { return Draft().ports.back(); }
  bool Ethernet() { return Port().link_layer == LinkLayer::kEthernet; }
  // Whether the port has anything that belongs to its link layer.
  bool HasAddresses() {
    return !DraftPort().addresses.empty() || DraftPort().has_link_local ||
           !DraftPort().by_hand.empty() || Port().lid != 0 || Port().sm_lid != 0;
  }

  // --- One per word ---
  void ReadNets() {
    while (next_ < words_.size() && error_.empty()) {
      const std::string name = TakeName(31);
      for (const std::string& other : topology_.nets) {
        if (other == name) Fail(name, "this net has been named before");
      }
      topology_.nets.push_back(name);
      if (topology_.nets.size() > kTopologyMaxNets) {
        Fail("nets", "too many nets", "up to " + std::to_string(kTopologyMaxNets));
      }
    }
  }
  void ReadRoute() {
    const int a = TakeNet();
    const int b = TakeNet();
    topology_.routes.push_back({a, b});
    topology_.routes.push_back({b, a});
  }
  void ReadRouteOneWay() {
    const int a = TakeNet();
    topology_.routes.push_back({a, TakeNet()});
  }
  void ReadHost() {
    const std::string name = TakeName(31);
    for (const std::string& other : topology_.hosts) {
      if (other == name) Fail(name, "this host has been named before");
    }
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      Fail(name, "a host's name may not be a number, since hosts are also named by index");
    }
    topology_.hosts.push_back(name);
    device_on_host_ = 0;
    scope_ = Scope::kHost;
    if (topology_.hosts.size() > kTopologyMaxHosts) {
      Fail(name, "too many hosts", "up to " + std::to_string(kTopologyMaxHosts));
    }
  }
  void ReadDevice() {
    const std::string name = TakeName(31);
    if (topology_.hosts.empty()) topology_.hosts.push_back("host0");
    TopologyDevice device;
    device.name = name;
    device.host = static_cast<int>(topology_.hosts.size()) - 1;
    for (const TopologyDevice& other : topology_.devices) {
      if (other.host == device.host && other.name == name) {
        Fail(name, "this host has a device of that name already");
      }
    }
    if (topology_.devices.size() == kTopologyMaxDevices) {
      Fail(name, "too many devices", "up to " + std::to_string(kTopologyMaxDevices));
      return;
    }
    device.node_guid = DefaultNodeGuid(device.host, device_on_host_);
    device.pci_path = DefaultPciPath(device_on_host_);
    index_on_host_.push_back(device_on_host_++);
    topology_.devices.push_back(device);
    drafts_.push_back({});
    Draft().line = line_;
    scope_ = Scope::kDevice;
  }
  void ReadPort() {
    const int number = static_cast<int>(TakeNumber(1, kTopologyMaxPorts));
    if (!error_.empty()) return;
    if (number != static_cast<int>(Device().ports.size()) + 1) {
      Fail(std::to_string(number), "ports come in order, each once",
           std::to_string(Device().ports.size() + 1));
      return;
    }
    AddPort(line_);
    scope_ = Scope::kPort;
  }
  void AddPort(int line) {
    const int number = static_cast<int>(Device().ports.size()) + 1;
    TopologyPort port;
    port.guid = DefaultPortGuid(Device().host, index_on_host_.back(), number);
    Device().ports.push_back(port);
    Draft().ports.push_back({});
    DraftPort().line = line;
    DraftPort().number = number;
  }
  void ReadPci() {
    const std::string path = TakeName(95, ":/");
    for (size_t begin = 0; error_.empty() && begin <= path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      if (!IsPciAddress(std::string_view(path).substr(begin, end - begin))) {
        Fail(path, "not a PCI address",
             "DDDD:BB:SS.F in hexadecimal, or several joined by '/', from the root");
      }
      begin = end + 1;
    }
    Device().pci_path = path;
  }
  void ReadNuma() {
    if (next_ < words_.size() && words_[next_] == "-1") {
      ++next_;
      Device().numa_node = -1;
    } else {
      Device().numa_node = static_cast<int>(TakeNumber(0, 1023, 0, "-1 or "));
    }
  }
  void ReadGuid() { (scope_ == Scope::kPort ? Port().guid : Device().node_guid) = TakeGuid(); }
  void ReadSystemGuid() {
    Device().sys_image_guid = TakeGuid();
    Draft().has_system_guid = true;
  }
  void ReadVendor() { Device().vendor_id = static_cast<uint32_t>(TakeNumber(0, 0xffffff)); }
  void ReadPart() { Device().vendor_part_id = static_cast<uint32_t>(TakeNumber(0, 0xffffff)); }
  void ReadHwVer() { Device().hw_ver = static_cast<uint32_t>(TakeNumber(0, 0xffffffff)); }
  void ReadFirmware() { Device().fw_ver = TakeName(31); }
  void ReadCap() {
    const std::string name = Take();
    std::string known;
    for (const CapRow& row : kCaps) {
      if (name == row.name) {
        Device().caps.*row.field = static_cast<uint32_t>(TakeNumber(1, row.max));
        return;
      }
      known += std::string(row.name) + ", ";
    }
    if (name == "max_mr_size") {
      Device().caps.max_mr_size = TakeNumber(1, ~uint64_t{0});
    } else {
      Fail(name, "no such cap", known + "max_mr_size");
    }
  }
  void ReadQuirk() {
    const std::string word = Take();
    std::vector<std::string> known;
    for (int bit = 0; bit < 64; ++bit) {
      const std::string name = QuirkNames(uint64_t{1} << bit);
      if (!name.empty()) known.push_back(name);
      if (!name.empty() && name == word) {
        Device().quirks.push_back(word);
        return;
      }
    }
    Fail(word, "no such quirk", JoinWords(known, "none"));
  }
  void ReadOpen() {
    const std::string word = Take();
    std::string known;
    for (const ErrnoRow& row : kOpenErrnos) {
      if (word == row.name) {
        Device().open_errno = row.value;
        return;
      }
      known += (known.empty() ? "" : ", ") + std::string(row.name);
    }
    Fail(word, "not a result of opening a device", known);
  }
  void ReadLink() {
    const std::string word = Take();
    const bool ethernet = word == "ethernet";
    if (!ethernet && word != "infiniband") {
      Fail(word, "not a link layer", "ethernet, infiniband");
      return;
    }
    if (ethernet != Ethernet() && HasAddresses()) {
      Fail(word, "comes before the port's addresses and LIDs");
    }
    Port().link_layer = ethernet ? LinkLayer::kEthernet : LinkLayer::kInfiniBand;
  }
  void ReadNet() {
    Port().net = TakeNet();
    DraftPort().has_net = true;
  }
  void ReadSpeed() {
    const uint32_t gbps = static_cast<uint32_t>(TakeNumber(0, 1u << 20));
    std::vector<std::string> known;
    for (const uint32_t speed : KnownSpeedsGbps()) known.push_back(std::to_string(speed));
    if (WidthSpeedOf(gbps).width == 0) {
      Fail(std::to_string(gbps), "not a speed in Gb/s that a link has", JoinWords(known, ""));
    }
    Port().speed_gbps = gbps;
  }
  void ReadMtu() { Port().max_mtu = TakeMtu(); }
  void ReadActiveMtu() {
    Port().active_mtu = TakeMtu();
    DraftPort().has_active_mtu = true;
  }
  void ReadAddress() {
    if (!Ethernet())
      Fail("address", "this port is InfiniBand; its GIDs are made of its GUID", "gid");
    DraftPort().addresses.push_back(TakeAddress());
  }
  void ReadLinkLocal() {
    if (!Ethernet()) Fail("link_local", "this port is InfiniBand", "subnet_prefix");
    DraftPort().has_link_local = true;
    if (next_ < words_.size() && words_[next_] == "none") {
      ++next_;
      return;
    }
    DraftPort().link_local = TakeAddress();
  }
  void ReadGid() {
    const uint32_t index = static_cast<uint32_t>(TakeNumber(0, kTopologyMaxGids - 1));
    TopologyGid entry;
    if (next_ < words_.size() && words_[next_] == "empty") {
      ++next_;
    } else {
      entry.gid = TakeAddress();
      const std::string type = Take();
      if (type == "v1" && Ethernet()) {
        entry.type = GidType::kRoceV1;
      } else if (type == "v2" && Ethernet()) {
        entry.type = GidType::kRoceV2;
      } else if (type == "ib" && !Ethernet()) {
        entry.type = GidType::kIb;
      } else {
        Fail(type, "not a GID type of this port", Ethernet() ? "v1, v2" : "ib");
      }
    }
    DraftPort().by_hand[index] = entry;
  }
  void ReadLid() {
    if (Ethernet())
      Fail("lid", "this port is Ethernet and has none", "say 'link infiniband' first");
    Port().lid = static_cast<uint32_t>(TakeNumber(1, 0xbfff));
  }
  void ReadSmLid() {
    if (Ethernet())
      Fail("sm_lid", "this port is Ethernet and has none", "say 'link infiniband' first");
    Port().sm_lid = static_cast<uint32_t>(TakeNumber(1, 0xbfff));
  }
  void ReadSubnetPrefix() {
    if (Ethernet()) Fail("subnet_prefix", "this port is Ethernet", "say 'link infiniband' first");
    Port().subnet_prefix = TakeGuid();
  }
  void ReadNetdev() { Port().netdev = TakeName(15); }
  void ReadState() {
    const std::string word = Take();
    if (word != "up" && word != "down") Fail(word, "not a state", "up, down");
    Port().up = word == "up";
  }
  void ReadPkey() {
    Port().pkeys.push_back(static_cast<uint16_t>(TakeNumber(1, 0xffff)));
    if (Port().pkeys.size() > kTopologyMaxPkeys) {
      Fail("pkey", "too many", "up to " + std::to_string(kTopologyMaxPkeys));
    }
  }

  std::string_view text_;
  const std::string_view file_;
  std::string error_;
  int line_ = 0;
  std::vector<std::string> words_;
  size_t next_ = 0;
  const Word* statement_ = nullptr;
  Scope scope_ = Scope::kTop;
  int device_on_host_ = 0;
  std::vector<int> index_on_host_;   // by device
  std::vector<DeviceDraft> drafts_;  // by device
  Topology topology_;
};

const std::vector<Parser::Word>& Parser::Words() {
  static const std::vector<Word>& words = *new std::vector<Word>{
      {"nets", Scope::kTop, "names of nets", &Parser::ReadNets},
      {"route", Scope::kTop, "two nets", &Parser::ReadRoute},
      {"route_one_way", Scope::kTop, "the net from which and the net to which",
       &Parser::ReadRouteOneWay},
      {"host", Scope::kTop, "a name", &Parser::ReadHost},
      {"device", Scope::kTop, "a name", &Parser::ReadDevice},
      {"pci", Scope::kDevice, "a PCI address", &Parser::ReadPci},
      {"numa", Scope::kDevice, "a node, or -1", &Parser::ReadNuma},
      {"guid", Scope::kDevice, "a GUID", &Parser::ReadGuid},
      {"system_guid", Scope::kDevice, "a GUID", &Parser::ReadSystemGuid},
      {"vendor", Scope::kDevice, "a number", &Parser::ReadVendor},
      {"part", Scope::kDevice, "a number", &Parser::ReadPart},
      {"hw_ver", Scope::kDevice, "a number", &Parser::ReadHwVer},
      {"firmware", Scope::kDevice, "a version", &Parser::ReadFirmware},
      {"cap", Scope::kDevice, "a cap and its value", &Parser::ReadCap},
      {"quirk", Scope::kDevice, "a quirk", &Parser::ReadQuirk},
      {"open", Scope::kDevice, "ok or an errno", &Parser::ReadOpen},
      {"port", Scope::kDevice, "1 or 2", &Parser::ReadPort},
      {"link", Scope::kPort, "ethernet, infiniband", &Parser::ReadLink},
      {"net", Scope::kPort, "a net", &Parser::ReadNet},
      {"speed", Scope::kPort, "Gb/s", &Parser::ReadSpeed},
      {"mtu", Scope::kPort, "bytes", &Parser::ReadMtu},
      {"active_mtu", Scope::kPort, "bytes", &Parser::ReadActiveMtu},
      {"address", Scope::kPort, "an address", &Parser::ReadAddress},
      {"link_local", Scope::kPort, "an address, none", &Parser::ReadLinkLocal},
      {"gid", Scope::kPort, "an index, an address and v1, v2 or ib; or an index and empty",
       &Parser::ReadGid},
      {"guid", Scope::kPort, "a GUID", &Parser::ReadGuid},
      {"lid", Scope::kPort, "a LID", &Parser::ReadLid},
      {"sm_lid", Scope::kPort, "a LID", &Parser::ReadSmLid},
      {"subnet_prefix", Scope::kPort, "16 hexadecimal digits", &Parser::ReadSubnetPrefix},
      {"netdev", Scope::kPort, "a network interface", &Parser::ReadNetdev},
      {"state", Scope::kPort, "up, down", &Parser::ReadState},
      {"pkey", Scope::kPort, "a P_Key", &Parser::ReadPkey},
  };
  return words;
}

// A word is understood where it belongs, and those that open something (host, device, port) also
// further in.
void Parser::ReadStatement() {
  const std::string name = words_[next_];
  const bool in_device = scope_ == Scope::kDevice || scope_ == Scope::kPort;
  std::vector<std::string> allowed;
  for (const Word& word : Words()) {
    const bool fits = word.scope == Scope::kTop || word.scope == scope_ ||
                      (in_device && word.read == &Parser::ReadPort);
    if (!fits) continue;
    if (name == word.name) {
      statement_ = &word;
      ++next_;
      (this->*word.read)();
      return;
    }
    allowed.push_back(word.name);
  }
  std::string message = "unknown word";
  for (const Word& word : Words()) {
    if (name != word.name) continue;
    message = word.scope == Scope::kPort ? "belongs to a port"
                                         : "belongs to a device, before its first port";
  }
  Fail(name, message, JoinWords(allowed, ""));
}

}  // namespace

std::optional<Topology> ParseTopology(std::string_view text, std::string_view file,
                                      std::string* error) {
  return Parser(text, file).Run(error);
}

}  // namespace railhop::rdma
