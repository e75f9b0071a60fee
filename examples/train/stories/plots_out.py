# SPDX-License-Identifier: MIT
"""Plots outdoors: a wish, an obstacle with its cause, an ending."""

LOST_THING = (
    "lost",
    """
{time}, {h} [went out to play|was playing|took a walk] {inplace} with {his} {col} {toy}. {Sky}, and {result}. [There were {seen} everywhere.|{h} saw {seen} and forgot everything else.|{He} [ran|jumped] from one end to the other.]
When {he} [wanted to go home|was tired], {he} [saw|noticed] that the {toy} was gone. {h} was very {sad}, because [the {toy} was a gift from {e}|{he} loved the {toy} more than anything|{he} had had it [since {he} was very small|for many years]]. [{He} looked {wrong}, but it was not there.|{He} looked here and there, but {he} found nothing.] [{He} sat down and began to cry.|{He} did not know what to do.|{He} almost gave up.]
{Then} {f} came [along|by|down the path]. "[Why are you so {sad}|What is the matter|What happened], {h}?" asked {f}. "I [have lost|cannot find] my {toy}," said {h}. "[Do not cry|Do not worry|Cheer up]," said {f}. "[We will look for it together|Four eyes see more than two|I will help you]. Where did you [see|have] it last?" {h} thought [hard|for a moment]. "I left it {hide}," {he} said. They [went|ran] there together, and there was the {toy}, {hide}. [It was a little dirty, but it was not broken.|It was wet, so {f} dried it with {his2} sleeve.|Nothing had happened to it.]
""",
    "From [then on|that day on], {h} [always looked after {his} things|never left the {toy} alone again|put the {toy} back in its place every evening]",
)

STUCK_UP = (
    "stuck",
    """
{time}, {h} and {f} were flying a {col} kite {inplace}. {Sky}. Suddenly [a strong wind|the wind] [took|pulled] the kite and carried it into [the top of a tall tree|a high tree|an old oak]. There it hung, and it did not come down.
"[Oh no|Oh dear]!" cried {h}. "[What shall we do now|How can we get it back]?" First {h} [pulled at the string|shook the tree], but the kite [did not move|only went higher]. Then {f} [threw a stick|jumped as high as {fhe} could], but the branch was too [high|far away]. [They grew tired and {sad}.|Both of them were {sad}, because the kite was new.]
{t} [passed by|heard them] and [stopped|put down {this} bag]. "[I have|There is] a long ladder [in my yard|behind my house]," {the} said. "[If you help me carry it|If you hold it], we can reach your kite." So they [carried|brought] the ladder to the tree. {h} held it tight while {t} climbed up, slowly and carefully, and [freed|untied] the kite. "[Here you are|Catch]!" {the} called, and the kite came down.
"[Thank you|Thank you so much]!" said {h} and {f}. In return, they helped {t} with {this} {goods} [until the evening|for the rest of the day].
""",
    "{h} learned that [a good friend and a ladder can reach any kite|asking for help is better than crying|there is always someone who can help]",
)

CROSSING = (
    "river",
    """
{time}, {h} wanted to visit {e}, who lived on the other side of the river. {He} [took|carried] a basket with [bread and cheese|a fresh {dish}|apples and nuts], because {e} was [ill|all alone|very old]. But when {he} came to the river, the bridge was [gone|broken]. [The rain had carried it away.|The storm had broken it in the night.|A tree had fallen on it.]
{h} [looked at the water|stood on the bank]. It was [deep and fast|cold and wide], and {he} could not [swim|cross it]. "[I must find another way|There must be a way]," {he} [thought|said]. {He} walked [up|down] the river until {he} met {f}, who was [fishing|resting in the sun|washing {fhis} feet]. "[Can you help me|How can I cross the river]?" asked {h}. {f} [thought about it|looked around]. "There are [many branches|old boards] here," said {f}. "[Let us build a raft|We could build a raft]."
They [tied|bound] the wood together with [a long rope|strong grass]. It took [the whole morning|two hours|a long time]. The first raft [broke|sank], because the knots were [loose|weak]. So they made the knots [tighter|stronger], and the second raft [was good|carried them both]. They pushed it into the water and [crossed|floated over] the river, slowly but safely.
{E} was [waiting at the door|standing at the window]. "[How did you get here|Who brought you over]?" {ehe} asked, [surprised|full of wonder]. "[We built a raft|With a raft and a friend]," said {h} [proudly|with a smile]. Then they all sat down and ate together.
""",
    "[That was the best meal of the year|Soon after, the village built a new bridge, but {h} kept the raft]",
)

BABY_ANIMAL = (
    "young",
    """
{time}, {h} was walking {inplace}. {Sky}. [Behind a bush|Under a tree|Beside the path], {he} heard something. It [was|sounded like] a very small voice. {h} [went closer|bent down] and saw a little {young}. It was [shaking|trembling] because it was [cold|hungry|alone], and it {sound}.
"[Poor little thing|You poor little {young}]," said {h}. "[Where is your mother|Have you lost your mother]?" The {young} only {sound}. {h} [put it under {his} coat|took it in {his} arms|gave it a little water] to [keep it warm|calm it]. Then {he} [went to look for|set out to find] its mother. 
First {he} asked {t}. "[I have not seen a {parent} today|No, I am sorry]," said {t}, "but [look in|try] {habitat}." So {h} went to {habitat}. It was [a long way|far], and {he} was tired, but {he} did not [stop|rest], because the {young} needed {him}. At last {he} [saw|met] a {parent} that was [running up and down|calling and calling|looking everywhere].
When the {parent} saw the {young}, [she was full of joy|she ran to it at once]. The {young} {sound} [again|loudly] and [jumped down|ran to her side]. The {parent} [looked at {h} for a long time, as if to say thank you|touched {h}'s hand softly]. 
""",
    "After that, the {young} [came to see {h} every day|and {h} were friends for ever|was never lost again]",
)

STORM = (
    "storm",
    """
{time}, {h} and {f} were [playing|picking berries|looking for mushrooms] {inplace}. In the morning the weather was fine, but at noon [dark clouds came up|the sky turned black]. "[We should go home|It is going to rain]," said {f}. "[Only a little longer|Not yet]," said {h}. So they stayed.
Soon the [first drops fell|thunder rolled over the hills]. Then it [rained so hard that they could not see the path|poured with rain]. They were wet [to the skin|from head to foot] and {sad}. "[I am sorry|It is my fault]," said {h}. "[I should have listened to you|You were right]." "[Never mind|That does not help us now]," said {f}. "[Let us look for a dry place|We must find a roof]."
They [took each other by the hand|stayed close together] and walked on until they saw a [small hut|cave|barn]. [Inside it was dry|It was dark inside, but it was dry]. {f} [made a fire|found some straw and some old blankets], and {h} [shared {his} last bread|told a funny story], so the time [passed quickly|did not seem long]. [After an hour|In the evening], the storm was over. A [rainbow|bright rainbow] stood over the {place}.
At home {e} [had been waiting|was very glad to see them]. {Ehe} gave them [dry clothes|hot soup] and [did not scold them|only shook {ehis} head].
""",
    "The next time {f} spoke of rain, {h} [listened at once|put on {his} hat and went home]",
)

PLANTING = (
    "seed",
    """
{time}, {e} gave {h} a [small|tiny] {seed} seed. "[Put it into the earth|Plant it in the garden]," {ehe} said, "[and be patient|and take care of it]." {h} made a hole, [dropped the seed into it|laid the seed in it] and covered it with earth. Then {he} [waited|sat down beside it].
The next day {he} looked, but nothing [had happened|was there]. [The day after, there was still nothing.|A whole week passed, and still there was only brown earth.] "[My seed is dead|It will never grow]," said {h}. "[Wait a little longer|Good things need time]," said {e}. So {h} watered it [every morning|every evening] and pulled out the weeds. 
Then, one morning, there was a [little green leaf|tiny green point] in the earth. {h} [shouted for joy|danced around it]. The plant grew [and grew|taller every day]. But soon {danger} came and [hurt|threatened] it. {h} was {sad}, but {he} [had an idea|asked {f} for help]. Together with {f}, {he} [protected|saved] the plant with {rescue}. [It was hard work, but it helped.|From that time on, it was safe.]
In [late summer|autumn], the plant gave {h} {fruit}. {He} [shared it with {f}|gave half of it to {f}|carried it to {e}], because [{f} had helped {him}|{e} had given {him} the seed].
""",
    "{h} kept one seed for the next year, [because {he} now knew how to wait|and put it in a little box]",
)

RACE = (
    "race",
    """
Every [summer|spring], there was a great race {inplace}. The winner got a [golden cup|big cake|blue ribbon]. {h} [wanted to win|dreamed of winning], so {he} [ran|trained] every morning [before breakfast|before the sun was up]. {f} [wanted to win too|ran in the race too], and {fhe} was [very fast|the fastest of all].
On the day of the race, {sky}. [Everybody had come to watch.|The whole village stood beside the road.] "[Ready, steady, go|One, two, three, go]!" called {t}, and they [ran|raced] off. At first {f} was in front. {h} was [close behind|only a few steps behind]. They ran [past the mill|over the bridge|around the pond] and up the hill. 
Suddenly {f} [stepped into a hole|slipped on a wet stone] and fell. "[My foot|My leg]!" {fhe} cried. {h} could [run past and win|win now]. {He} [looked at the finish|thought of the prize], and then {he} [looked back|stopped]. {f} [could not stand up|was holding {fhis} foot]. So {h} [turned around|went back] and helped {fhim} up. "[Lean on me|Put your arm around me]," {he} said. Slowly, step by step, they [walked|went on] together.
They were the last of all, but the people [clapped|cheered] louder than ever. {t} gave the [winner the prize|prize to the winner], but then {the} [brought a second prize|took something out of {this} pocket]. "This is for [the best friend|the kindest heart]," {the} said, and gave it to {h}.
""",
    "{h} and {f} [shared the prize|shared it, and the next year they ran side by side]",
)

TREASURE = (
    "map",
    """
{time}, {h} found an old map [in the attic|in a bottle|between two books]. There was a [red cross|black circle] on it, and beside it stood a word: "{place}". "[A treasure|It must be a treasure|Look at this]!" cried {h}, and {he} ran to {f}. "[Come with me|Let us look for it]!" {f} [took a spade|brought a lantern], and they [set out|started at once].
The way was [long|not easy]. They had to [cross a stream|climb over a wall], [walk around a swamp|creep under a fence] and [follow a row of white stones|count a hundred steps from the big tree]. {h} read the map, and {f} [carried the food|counted the steps]. "[Here it is|It must be here]," said {h} at last. They [dug and dug|dug a deep hole], until the spade hit something hard.
It was a box. {f} [cleaned it|brushed off the earth], and {h} opened the lid. Inside there was no gold. There was only [a small letter|a piece of paper] and [two old cups|a handful of glass beads|a wooden flute]. {h} was {sad}. But {f} read the letter aloud: "[Whoever finds this has walked a long way with a friend|You have come here with a friend]. [That is the treasure|A friend is the greatest treasure]." They looked at each other and [began to laugh|smiled].
[They filled the box with shells and buried it again.|They put something of their own into the box and hid it again.]
""",
    "The map hung over {h}'s bed [for many years|ever after]",
)

LOST_WAY = (
    "way",
    """
{time}, {e} [asked {h} to carry|sent {h} with] a letter to {t}, who lived [on the far side of the forest|behind the hill]. "[Stay on the path|Do not leave the path]," said {e}. {h} [promised it|said yes] and [went off|set out].
On the way {he} saw {seen}. They were so [beautiful|pretty] that {he} [followed them|went closer], a few steps and then a few more. When {he} turned around, the path was gone. [All the trees looked the same.|There was nothing but trees.] It [was getting dark|grew dark], and {h} was {sad}. "[I should have stayed on the path|If only I had listened]," {he} [thought|said to {himself}].
Then {he} [remembered something|had an idea]. {E} had [once told {him}|taught {him}] that [water always runs down to the village|smoke shows where people live]. So {he} [listened|looked around]. [Far away|Not far away], {he} could [hear a stream|see some smoke]. {He} [followed it|walked towards it], [over stones and roots|through bushes and over stones], and [at last|after a while] {he} saw a light. It was the window of {t}.
"[You are late|So late]!" said {t}, but {the} was not angry. {The} gave {h} [warm milk|some soup] and read the letter. "[Do you know what it says|Shall I tell you what is in it]?" {the} asked. "It says: [please give the child who brings this a piece of cake|the one who brings this letter is clever and brave]."
""",
    "In the morning {t} [brought|walked] {h} home, and this time they [stayed on the path|did not leave the path]",
)

HEAVY = (
    "heavy",
    """
{time}, {h} found a [huge|very big] [pumpkin|turnip] in the field. "[What a fine dinner|That will feed us all winter]!" {he} said and [pulled at it|tried to lift it]. It did not move. {h} pulled [harder|with all {his} strength], but {he} only fell [on {his} back|into the mud]. 
{h} [was too proud to ask for help|wanted to do it alone], so {he} tried it with a {tool}. The {tool} broke. Then {f} [came by|looked over the fence]. "[May I help you|Shall I help you]?" asked {f}. "No," said {h}, "[I can do it alone|I do not need help]." But when {he} had tried [three more times|again and again], {he} was [tired|out of breath]. "[Well|All right]," said {h} [in a low voice|at last], "[please help me|perhaps you can help me]."
So {f} pulled too, and then {t} came and pulled with them. They pulled [once, twice, three times|and pulled], and suddenly it came out, so that all of them [fell over|sat on the ground]. Nobody was hurt, and they [laughed|laughed until they cried]. Then they rolled it home, cut it and [cooked|made] a [big pot of soup|great soup].
There was enough for [everyone|the whole village]. "[It tastes better together|I could never have eaten it alone]," said {h}.
""",
    "{h} was no longer too proud to [ask|say please]",
)
PLOTS = [
    LOST_THING,
    STUCK_UP,
    CROSSING,
    BABY_ANIMAL,
    STORM,
    PLANTING,
    RACE,
    TREASURE,
    LOST_WAY,
    HEAVY,
]
